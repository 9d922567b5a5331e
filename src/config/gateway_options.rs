//! Options of the gateway, from environment variables.

use std::env;

use super::env_vars;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayOptions {
    /// Agent for calls that name none.
    pub default_agent: Option<String>,
    /// Offer `get_gateway_status`.
    pub debug: bool,
    /// Start servers together with the gateway instead of at their first call.
    pub eager: bool,
    /// Serve HTTP instead of stdio.
    pub http: bool,
}

impl GatewayOptions {
    /// Reads the variables; the error is one line that names the variable.
    pub fn from_environment() -> Result<Self, String> {
        Self::read(&|name| env::var(name).ok())
    }

    fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let word = |name: &str| variable(name).map(|text| text.trim().to_ascii_lowercase());
        let one_of = |name: &str, usual: &str, other: &str| match word(name).as_deref() {
            None | Some("") => Ok(false),
            Some(text) if text == usual => Ok(false),
            Some(text) if text == other => Ok(true),
            Some(text) => Err(format!("{name} is `{text}`; set it to `{usual}` or `{other}`")),
        };
        Ok(Self {
            default_agent: variable(env_vars::GATEWAY_DEFAULT_AGENT)
                .filter(|name| !name.is_empty()),
            debug: matches!(word(env_vars::GATEWAY_DEBUG).as_deref(), Some("true" | "1" | "yes")),
            eager: one_of(env_vars::GATEWAY_INIT_STRATEGY, "lazy", "eager")?,
            http: one_of(env_vars::GATEWAY_TRANSPORT, "stdio", "http")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_case_insensitive_and_others_are_rejected() {
        let read = |name: &'static str, value: &'static str| {
            GatewayOptions::read(&move |asked| (asked == name).then(|| value.to_owned()))
        };
        assert!(read(env_vars::GATEWAY_DEBUG, "YES").unwrap().debug);
        assert!(!read(env_vars::GATEWAY_DEBUG, "no").unwrap().debug);
        assert!(read(env_vars::GATEWAY_INIT_STRATEGY, "Eager").unwrap().eager);
        assert_eq!(read("NONE", ""), Ok(GatewayOptions::default()));
        let error = read(env_vars::GATEWAY_TRANSPORT, "tcp").unwrap_err();
        assert_eq!(error, "GATEWAY_TRANSPORT is `tcp`; set it to `stdio` or `http`");
    }
}
