//! `${VAR}`, `${VAR:-default}` and a leading `~`: checked when read, resolved when something is started.
//!
//! One rule for agent files, `.mcp.json` and extensions. Everything else stays as it is, a `$` without braces included:
//! a pattern like `^a$b` is nobody's variable.

use super::model::Template;

impl Template {
    /// The text with variables from `lookup` and `~` from `home` put in.
    ///
    /// As in Claude Code, a variable that is set wins over a default, also when it is empty.
    pub fn resolve(
        &self,
        lookup: impl Fn(&str) -> Option<String>,
        home: Option<&str>,
    ) -> Result<String, UnsetVariable> {
        let mut text = String::new();
        for part in parts(&self.0) {
            match part {
                Part::Text(plain) => text.push_str(plain),
                Part::Stray(_) => text.push_str("${"),
                Part::Variable { name, default } => {
                    let value = lookup(name).or_else(|| default.map(str::to_owned));
                    text += &value.ok_or_else(|| UnsetVariable { name: name.to_owned() })?;
                }
            }
        }
        // Only a `~` that was written counts, not one that a variable brought.
        match self.0.starts_with('~') {
            true => Ok(shellexpand::tilde_with_context(&text, || home).into_owned()),
            false => Ok(text),
        }
    }

    /// The names of the variables in it, in order.
    pub fn variables(&self) -> Vec<String> {
        let name = |part| match part {
            Part::Variable { name, .. } => Some(name.to_owned()),
            Part::Text(_) | Part::Stray(_) => None,
        };
        parts(&self.0).into_iter().filter_map(name).collect()
    }

    /// As it was written.
    pub fn as_written(&self) -> &str {
        &self.0
    }

    /// What is wrong with the way it is written, if anything.
    pub(super) fn mistake(&self) -> Option<String> {
        parts(&self.0).into_iter().find_map(|part| match part {
            Part::Stray(behind) => Some(match behind.split_once('}') {
                Some((inside, _)) => format!("`${{{inside}}}` does not name a variable"),
                None => "`${` is never closed by `}`".to_owned(),
            }),
            Part::Text(_) | Part::Variable { .. } => None,
        })
    }
}

/// A piece of a template.
enum Part<'t> {
    Text(&'t str),
    Variable {
        name: &'t str,
        default: Option<&'t str>,
    },
    /// A `${` that names no variable, with what follows it.
    Stray(&'t str),
}

fn parts(written: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = written;
    while let Some((before, from)) = rest.split_once("${") {
        parts.push(Part::Text(before));
        let Some((variable, behind)) = variable(from) else {
            parts.push(Part::Stray(from));
            rest = from;
            continue;
        };
        parts.push(variable);
        rest = behind;
    }
    parts.push(Part::Text(rest));
    parts
}

/// The variable whose name begins here, and what follows its `}`.
fn variable(from: &str) -> Option<(Part<'_>, &str)> {
    let (inside, behind) = from.split_once('}')?;
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    is_variable_name(name).then_some((Part::Variable { name, default }, behind))
}

/// Whether a text can be the name of an environment variable.
pub(super) fn is_variable_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A variable without a value and without a default.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the variable `{name}` is not set; set it, or write `${{{name}:-a default}}`")]
pub struct UnsetVariable {
    /// Its name.
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
    fn resolution(text: &str) -> Result<String, UnsetVariable> {
        Template(text.to_owned()).resolve(lookup, Some("/home/a"))
    }

    #[test]
    fn the_variables_are_named_in_order() {
        let template = Template("${B:-x}/$A/${C}".to_owned());
        assert_eq!(template.variables(), ["B", "C"]);
    }

    #[test_case("${OPEN", true)]
    #[test_case("${}", true)]
    #[test_case("${a-b}", true)]
    #[test_case("$5 and ${A:-}", false)]
    fn mistakes_are_found_when_read(text: &str, wrong: bool) {
        assert_eq!(Template(text.to_owned()).mistake().is_some(), wrong);
    }
}
