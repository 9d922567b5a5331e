//! Downstream results that pass rmcp's typed results without a change.
//!
//! rmcp drops fields that its types do not know, and rewrites numbers. A handler therefore packs the result as a JSON
//! string into the `_meta` of an empty result, and the transport unpacks it from the serialized message.

use std::borrow::Cow;
use std::collections::HashMap;

use memchr::memmem;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::jsonrpc::{Frame, Id, LineJson};

/// The key in `_meta` of the packed result.
const PACKED_RESULT_KEY: &str = "adjutant/result";

/// Packs `raw` into an empty result; returns the empty result if it cannot carry `_meta`.
pub(crate) fn pack<T: Serialize + DeserializeOwned>(raw: &LineJson, empty: T) -> T {
    let packed = || {
        let mut carrier = serde_json::to_value(&empty).ok()?;
        let text = Value::from(raw.as_str());
        let meta = Map::from_iter([(PACKED_RESULT_KEY.to_owned(), text)]);
        carrier.as_object_mut()?.insert("_meta".to_owned(), Value::Object(meta));
        serde_json::from_value(carrier).ok()
    };
    packed().unwrap_or(empty)
}

/// Returns the response with its packed result unpacked; `None` if nothing is packed in the message.
pub(crate) fn unpack(message: &[u8]) -> Option<Frame> {
    // Most messages lack the key: a substring search is cheaper than parsing.
    memmem::find(message, PACKED_RESULT_KEY.as_bytes())?;
    let response: PackedResponse<'_> = serde_json::from_slice(message).ok()?;
    let carrier: Carrier<'_> = serde_json::from_str(response.result.get()).ok()?;
    let raw = LineJson::parse(carrier.meta.packed).ok()?;
    // Fields that revision 2026-07-28 requires in some results and rmcp adds to the empty result.
    let fields = [
        ("resultType", carrier.result_type),
        ("ttlMs", carrier.ttl_ms),
        ("cacheScope", carrier.cache_scope),
    ];
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name, value?.get())));
    Some(Frame::result(&Id::parse(response.id.get())?, &with_missing_fields(raw, fields)))
}

#[derive(Deserialize)]
struct PackedResponse<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    result: &'a RawValue,
}

/// A result of rmcp's types with a packed one in it.
#[derive(Deserialize)]
struct Carrier<'a> {
    #[serde(rename = "_meta")]
    meta: CarrierMeta,
    #[serde(borrow, default, rename = "resultType")]
    result_type: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "ttlMs")]
    ttl_ms: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "cacheScope")]
    cache_scope: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CarrierMeta {
    #[serde(rename = "adjutant/result")]
    packed: String,
}

/// Appends those of `fields` (name and JSON) that the result does not have at its top level.
pub(crate) fn with_missing_fields<'f>(
    result: LineJson,
    fields: impl Iterator<Item = (&'f str, &'f str)>,
) -> LineJson {
    let missing: Vec<_> = fields.filter(|(name, _)| !has_field(&result, name)).collect();
    let Some(rest) = result.as_str().trim_end().strip_suffix('}').filter(|_| !missing.is_empty())
    else {
        return result;
    };
    let mut whole = rest.to_owned();
    for (name, value) in missing {
        let comma = if whole.trim_end() == "{" { "" } else { "," };
        whole.push_str(&format!("{comma}\"{name}\":{value}"));
    }
    whole.push('}');
    LineJson::parse(whole).unwrap_or(result)
}

/// Returns true if the result has the field at its top level; nested ones do not count.
fn has_field(result: &LineJson, name: &str) -> bool {
    let text = result.as_str();
    // Most results have neither the word nor an escape that could spell it: a search is cheaper than parsing.
    let mentions = |word: &str| memmem::find(text.as_bytes(), word.as_bytes()).is_some();
    (mentions(name) || mentions("\\u"))
        && serde_json::from_str::<HashMap<Cow<'_, str>, &RawValue>>(text)
            .is_ok_and(|fields| fields.contains_key(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::CallToolResult;
    use serde_json::json;
    use test_case::test_case;

    fn raw(text: &str) -> LineJson {
        LineJson::parse(text.to_owned()).unwrap()
    }

    /// The message that rmcp sends for `result`.
    fn sent(result: &impl Serialize) -> String {
        json!({ "jsonrpc": "2.0", "id": "a", "result": result }).to_string()
    }

    #[test]
    fn a_packed_result_keeps_its_text() {
        let text = r#"{ "zeta":[1e2,123456789012345678901234567890],"content":[{"type":"hologram"}],"_meta":{"adjutant/result":"{}"}}"#;
        let carrier = pack(&raw(text), CallToolResult::success(Vec::new()));
        let frame = unpack(sent(&carrier).as_bytes()).unwrap();
        let expected = text.strip_suffix('}').unwrap();
        assert_eq!(
            String::from_utf8(frame.into_bytes()).unwrap(),
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{expected},\"resultType\":\"complete\"}}}}\n"
            )
        );
    }

    #[test]
    fn text_that_mentions_the_key_is_not_changed() {
        let said = json!({ "content": [{ "type": "text", "text": PACKED_RESULT_KEY }] });
        assert_eq!(unpack(sent(&said).as_bytes()), None);
        assert_eq!(unpack(PACKED_RESULT_KEY.as_bytes()), None);
    }

    #[test_case(r#"{"content":[]}"#, r#"{"content":[],"resultType":"complete"}"#; "a result")]
    #[test_case("{ }", r#"{ "resultType":"complete"}"#; "nothing")]
    #[test_case(r#"{"x":{"resultType":1}}"#, r#"{"x":{"resultType":1},"resultType":"complete"}"#; "the word deeper down")]
    #[test_case(r#"{"resultType":"input_required"}"#, r#"{"resultType":"input_required"}"#; "one that says so itself")]
    #[test_case(r#"{"result\u0054ype":1,"x":1e400}"#, r#"{"result\u0054ype":1,"x":1e400}"#; "in another spelling")]
    #[test_case(r#""text""#, r#""text""#; "no object")]
    fn missing_fields_are_appended(text: &str, expected: &str) {
        let fields = [("resultType", "\"complete\"")].into_iter();
        assert_eq!(with_missing_fields(raw(text), fields).as_str(), expected);
    }
}
