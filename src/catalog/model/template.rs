//! Template syntax: `${VAR}`, `${VAR:-default}` and a leading `~`.
//!
//! Used in agent files, `.mcp.json` and extensions. The syntax is validated on reading and resolved at launch. A `$`
//! without braces is literal, so that patterns such as `^a$b` need no escaping.

use super::agent::Template;

impl Template {
    /// Substitutes variables from `lookup` and a leading `~` from `home`.
    ///
    /// As in Claude Code, a set variable takes precedence over the default even if it is empty.
    pub fn resolve(
        &self,
        lookup: impl Fn(&str) -> Option<String>,
        home: Option<&str>,
    ) -> Result<String, UnsetVariable> {
        let mut text = String::new();
        for part in parse_parts(&self.0) {
            match part {
                TemplatePart::Text(plain) => text.push_str(plain),
                TemplatePart::Invalid(_) => text.push_str("${"),
                TemplatePart::Variable { name, default } => {
                    let value = lookup(name).or_else(|| default.map(str::to_owned));
                    text += &value.ok_or_else(|| UnsetVariable { name: name.to_owned() })?;
                }
            }
        }
        // Only a literal `~` is expanded, not one from a variable.
        match self.0.starts_with('~') {
            true => Ok(shellexpand::tilde_with_context(&text, || home).into_owned()),
            false => Ok(text),
        }
    }

    /// Returns the names of all variables, in order.
    pub fn variables(&self) -> Vec<String> {
        let name = |part| match part {
            TemplatePart::Variable { name, .. } => Some(name.to_owned()),
            TemplatePart::Text(_) | TemplatePart::Invalid(_) => None,
        };
        parse_parts(&self.0).into_iter().filter_map(name).collect()
    }

    pub fn as_written(&self) -> &str {
        &self.0
    }

    /// Returns the first syntax error.
    pub(crate) fn syntax_error(&self) -> Option<String> {
        parse_parts(&self.0).into_iter().find_map(|part| match part {
            TemplatePart::Invalid(behind) => Some(match behind.split_once('}') {
                Some((inside, _)) => format!("`${{{inside}}}` does not name a variable"),
                None => "`${` is never closed by `}`".to_owned(),
            }),
            TemplatePart::Text(_) | TemplatePart::Variable { .. } => None,
        })
    }
}

enum TemplatePart<'t> {
    Text(&'t str),
    Variable {
        name: &'t str,
        default: Option<&'t str>,
    },
    /// `${` without a valid variable name, and the text after it.
    Invalid(&'t str),
}

fn parse_parts(written: &str) -> Vec<TemplatePart<'_>> {
    let mut parts = Vec::new();
    let mut rest = written;
    while let Some((before, from)) = rest.split_once("${") {
        parts.push(TemplatePart::Text(before));
        let Some((variable, behind)) = parse_variable(from) else {
            parts.push(TemplatePart::Invalid(from));
            rest = from;
            continue;
        };
        parts.push(variable);
        rest = behind;
    }
    parts.push(TemplatePart::Text(rest));
    parts
}

/// Parses the variable at the start of `from`; also returns the text after its `}`.
fn parse_variable(from: &str) -> Option<(TemplatePart<'_>, &str)> {
    let (inside, behind) = from.split_once('}')?;
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    is_variable_name(name).then_some((TemplatePart::Variable { name, default }, behind))
}

pub(crate) fn is_variable_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A variable without value and default.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the variable `{name}` is not set; set it, or write `${{{name}:-a default}}`")]
pub struct UnsetVariable {
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn lookup(name: &str) -> Option<String> {
        let known = [("KEY", "k-1"), ("EMPTY", ""), ("TILDE", "~/x")];
        known.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    #[test_case("${KEY}" => Ok("k-1".to_owned()))]
    #[test_case("^a$b $KEY ${" => Ok("^a$b $KEY ${".to_owned()); "only braces count")]
    #[test_case("${EMPTY:-x}-${EMPTY}" => Ok("-".to_owned()))]
    #[test_case("${a b ${KEY} ${1}" => Ok("${a b k-1 ${1}".to_owned()))]
    #[test_case("${KEY}/${KEY}" => Ok("k-1/k-1".to_owned()))]
    #[test_case("${TILDE}" => Ok("~/x".to_owned()); "a value is not looked into")]
    #[test_case("~/${KEY}" => Ok("/home/a/k-1".to_owned()))]
    #[test_case("${NONE:-fall back}" => Ok("fall back".to_owned()))]
    #[test_case("${KEY:-fall back}" => Ok("k-1".to_owned()))]
    #[test_case("~/x" => Ok("/home/a/x".to_owned()))]
    #[test_case("a ~ b" => Ok("a ~ b".to_owned()))]
    #[test_case("${NONE}" => Err(UnsetVariable { name: "NONE".to_owned() }))]
    fn resolves_variables_and_home(text: &str) -> Result<String, UnsetVariable> {
        Template(text.to_owned()).resolve(lookup, Some("/home/a"))
    }

    #[test]
    fn variables_are_listed_in_order() {
        let template = Template("${B:-x}/$A/${C}".to_owned());
        assert_eq!(template.variables(), ["B", "C"]);
    }

    #[test_case("${OPEN", true)]
    #[test_case("${}", true)]
    #[test_case("${a-b}", true)]
    #[test_case("$5 and ${A:-}", false)]
    fn syntax_errors_are_found(text: &str, wrong: bool) {
        assert_eq!(Template(text.to_owned()).syntax_error().is_some(), wrong);
    }
}
