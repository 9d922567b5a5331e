//! `${VAR}`, `${VAR:-default}` and a leading `~`: checked when read, resolved when an agent is started.

use super::model::Template;

impl Template {
    /// The text with variables from `lookup` and `~` from `home` put in.
    ///
    /// A variable that is set wins over a default, also when it is empty.
    pub fn resolve(
        &self,
        lookup: impl Fn(&str) -> Option<String>,
        home: Option<&str>,
    ) -> Result<String, UnsetVariable> {
        let value = |name: &str| {
            lookup(name).map(Some).ok_or_else(|| UnsetVariable { name: name.to_owned() })
        };
        shellexpand::full_with_context(&self.0, || home, value)
            .map(std::borrow::Cow::into_owned)
            .map_err(|error| error.cause)
    }

    /// The names of the variables in it, in order.
    pub fn variables(&self) -> Vec<String> {
        let mut names = Vec::new();
        let note = |name: &str| {
            names.push(name.to_owned());
            Some("")
        };
        let _ = shellexpand::env_with_context_no_errors(&self.0, note);
        names
    }

    /// As it was written.
    pub fn as_written(&self) -> &str {
        &self.0
    }

    /// What is wrong with the way it is written, if anything.
    pub(super) fn mistake(&self) -> Option<String> {
        let mut rest = self.0.as_str();
        while let Some((_, after)) = rest.split_once("${") {
            let Some((inside, behind)) = after.split_once('}') else {
                return Some("`${` is never closed by `}`".to_owned());
            };
            let name = inside.split_once(":-").map_or(inside, |(name, _)| name);
            if !is_variable_name(name) {
                return Some(format!("`${{{inside}}}` does not name a variable"));
            }
            rest = behind;
        }
        None
    }
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
        (name == "KEY").then(|| "k-1".to_owned())
    }

    #[test_case("${KEY}" => Ok("k-1".to_owned()))]
    #[test_case("Bearer $KEY" => Ok("Bearer k-1".to_owned()))]
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
        assert_eq!(template.variables(), ["B", "A", "C"]);
    }

    #[test_case("${OPEN", true)]
    #[test_case("${}", true)]
    #[test_case("${a-b}", true)]
    #[test_case("$5 and ${A:-}", false)]
    fn mistakes_are_found_when_read(text: &str, wrong: bool) {
        assert_eq!(Template(text.to_owned()).mistake().is_some(), wrong);
    }
}
