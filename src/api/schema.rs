//! JSON Schemas of the objects.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde_json::Value;

use super::{
    agent, audit_entry, cost, decision, error, event, extension, finding, plan, report, run,
    server, session, token,
};

/// Returns the name and the schema of every object.
fn object_schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("agent", schema_of::<agent::AgentObject>()),
        ("audit_entry", schema_of::<audit_entry::AuditEntryObject<'_>>()),
        ("audit_verification", schema_of::<audit_entry::AuditVerification>()),
        ("check", schema_of::<finding::CheckObject>()),
        ("cost", schema_of::<cost::CostObject>()),
        ("decision", schema_of::<decision::DecisionObject>()),
        ("error", schema_of::<error::ErrorReport>()),
        ("event", schema_of::<event::EventLine>()),
        ("extension", schema_of::<extension::ExtensionObject>()),
        ("finding", schema_of::<finding::FindingObject>()),
        ("plan", schema_of::<plan::PlanObject>()),
        ("report", schema_of::<report::ReportObject>()),
        ("reports", schema_of::<report::ReportsObject>()),
        ("run", schema_of::<run::RunObject>()),
        ("server", schema_of::<server::ServerObject>()),
        ("session", schema_of::<session::SessionObject>()),
        ("stats", schema_of::<cost::AgentStatsObject>()),
        ("token", schema_of::<token::TokenObject>()),
    ]
}

/// Returns the schema of an object: unknown members are forbidden, optional ones may be absent but not `null`.
fn schema_of<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12()
        .for_serialize()
        .with_transform(RecursiveTransform(close_object))
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

fn close_object(schema: &mut schemars::Schema) {
    let Some(object) = schema.as_object_mut() else { return };
    if !object.contains_key("properties") {
        return;
    }
    object.insert("additionalProperties".to_owned(), false.into());
    let properties = object.get_mut("properties").and_then(Value::as_object_mut);
    let mut optional = Vec::new();
    for (name, member) in properties.into_iter().flatten() {
        if remove_null(member) {
            optional.push(name.clone());
        }
    }
    let required = object.get_mut("required").and_then(Value::as_array_mut);
    if let Some(required) = required {
        required
            .retain(|name| name.as_str().is_none_or(|name| !optional.iter().any(|o| o == name)));
    }
}

/// Removes `null` from the types of a member; returns true if it was there.
fn remove_null(member: &mut Value) -> bool {
    let Some(member) = member.as_object_mut() else { return false };
    if let Some(Value::Array(types)) = member.get_mut("type") {
        let before = types.len();
        types.retain(|name| name != "null");
        let removed = types.len() < before;
        if let [only] = types.as_mut_slice() {
            let only = only.take();
            member.insert("type".to_owned(), only);
        }
        return removed;
    }
    let Some(Value::Array(choices)) = member.get_mut("anyOf") else { return false };
    let before = choices.len();
    choices.retain(|choice| choice.get("type").is_none_or(|name| name != "null"));
    let removed = choices.len() < before;
    if let [Value::Object(only)] = choices.as_mut_slice() {
        let only = std::mem::take(only);
        member.shift_remove("anyOf");
        member.extend(only);
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::{env, fs};

    /// `UPDATE_SCHEMAS=1` writes the files instead.
    #[test]
    fn the_schemas_in_docs_are_those_of_the_types() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema/output");
        for (name, schema) in object_schemas() {
            let path = folder.join(format!("{name}.schema.json"));
            let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
            if env::var_os("UPDATE_SCHEMAS").is_some() {
                fs::create_dir_all(&folder).unwrap();
                fs::write(&path, &text).unwrap();
            }
            let written = fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(written, text, "run this test with UPDATE_SCHEMAS=1: {}", path.display());
        }
    }
}
