//! `auth` of a server in `.mcp.json`, and what other programs write as `oauth`.

use serde_json::{Map, Value};

use crate::base::shorten;
use crate::catalog::{SignIn, Template};

const KEYS: [&str; 6] =
    ["isolation", "client_id", "client_secret", "scopes", "redirect_port", "private_addresses"];

/// Reads both; a typo is an error, because it could send a person to sign in as somebody else.
pub(in super::super) fn read_sign_in(entry: &Map<String, Value>) -> Result<SignIn, String> {
    let foreign = section(entry, "oauth")?;
    let own = section(entry, "auth")?;
    if let Some(key) = own.iter().flat_map(|own| own.keys()).find(|key| !KEYS.contains(&&***key)) {
        return Err(format!("`auth` has an unknown key `{}`", shorten(key, 40)));
    }
    let client_id = match text(own, "auth", "client_id")? {
        Some(id) => Some(id),
        None => text(foreign, "oauth", "clientId")?,
    };
    let client_secret = text(own, "auth", "client_secret")?;
    if client_secret.is_some() && client_id.is_none() {
        return Err("`auth` has a `client_secret` and no `client_id`".to_owned());
    }
    Ok(SignIn {
        client_id,
        client_secret,
        scopes: scopes(own)?,
        redirect_port: match port(own, "auth", "redirect_port")? {
            Some(port) => Some(port),
            None => port(foreign, "oauth", "callbackPort")?,
        },
        private_addresses: flag(own, "private_addresses")?,
        per_agent: isolation(own)?,
    })
}

type Section<'a> = Option<&'a Map<String, Value>>;

fn section<'a>(entry: &'a Map<String, Value>, key: &str) -> Result<Section<'a>, String> {
    match entry.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(section)) => Ok(Some(section)),
        Some(_) => Err(format!("`{key}` is no JSON object")),
    }
}

fn value<'a>(section: Section<'a>, key: &str) -> Option<&'a Value> {
    section.and_then(|section| section.get(key)).filter(|value| !value.is_null())
}

fn text(section: Section<'_>, name: &str, key: &str) -> Result<Option<Template>, String> {
    match value(section, key) {
        None => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(Template(text.clone()))),
        Some(_) => Err(format!("`{name}.{key}` is no text")),
    }
}

fn scopes(section: Section<'_>) -> Result<Vec<String>, String> {
    let wrong = || "`auth.scopes` is neither a text nor a list of texts".to_owned();
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    match value(section, "scopes") {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(words(text)),
        Some(Value::Array(items)) => {
            let each = items.iter().map(|item| item.as_str().map(words).ok_or_else(wrong));
            Ok(each.collect::<Result<Vec<_>, _>>()?.concat())
        }
        Some(_) => Err(wrong()),
    }
}

fn port(section: Section<'_>, name: &str, key: &str) -> Result<Option<u16>, String> {
    let Some(written) = value(section, key) else { return Ok(None) };
    let port = written.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
    port.map(Some).ok_or_else(|| format!("`{name}.{key}` is no port"))
}

fn flag(section: Section<'_>, key: &str) -> Result<bool, String> {
    match value(section, key) {
        None => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(format!("`auth.{key}` is neither true nor false")),
    }
}

fn isolation(section: Section<'_>) -> Result<bool, String> {
    match value(section, "isolation").map(Value::as_str) {
        None | Some(Some("shared")) => Ok(false),
        Some(Some("agent")) => Ok(true),
        Some(_) => Err("`auth.isolation` is neither `shared` nor `agent`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use test_case::test_case;

    fn read(entry: &Value) -> Result<SignIn, String> {
        read_sign_in(entry.as_object().unwrap())
    }

    #[test]
    fn both_ways_of_writing_are_read() {
        let own = read(&json!({"auth": {
            "isolation": "agent", "client_id": "${ID}", "client_secret": "${SECRET}",
            "scopes": ["a b", "c"], "redirect_port": 8123, "private_addresses": true,
        }}));
        let expected = SignIn {
            client_id: Some(Template("${ID}".to_owned())),
            client_secret: Some(Template("${SECRET}".to_owned())),
            scopes: ["a", "b", "c"].map(str::to_owned).to_vec(),
            redirect_port: Some(8123),
            private_addresses: true,
            per_agent: true,
        };
        assert_eq!(own, Ok(expected));
        let foreign =
            read(&json!({"oauth": {"clientId": "x", "callbackPort": 1, "more": 2}})).unwrap();
        assert_eq!((foreign.client_id.unwrap().0.as_str(), foreign.redirect_port), ("x", Some(1)));
        assert_eq!(read(&json!({})), Ok(SignIn::default()));
    }

    #[test_case(&json!({"scope": "a"}), "`auth` has an unknown key `scope`")]
    #[test_case(&json!({"client_secret": "s"}), "`auth` has a `client_secret` and no `client_id`")]
    #[test_case(&json!({"isolation": "run"}), "`auth.isolation` is neither `shared` nor `agent`")]
    #[test_case(&json!({"redirect_port": 70_000}), "`auth.redirect_port` is no port")]
    #[test_case(&json!({"scopes": [1]}), "`auth.scopes` is neither a text nor a list of texts")]
    fn a_typo_is_an_error(auth: &Value, expected: &str) {
        assert_eq!(read(&json!({ "auth": auth })), Err(expected.to_owned()));
    }
}
