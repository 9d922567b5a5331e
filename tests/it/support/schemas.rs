//! Validation against the schemas of `docs/schema/output/`.

use std::collections::BTreeMap;
use std::fs;
use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value;

static VALIDATORS: LazyLock<BTreeMap<String, Validator>> = LazyLock::new(|| {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/schema/output");
    let files = fs::read_dir(folder).expect("the schemas").map(|file| file.expect("a file").path());
    let validator = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().replace(".schema.json", "");
        let schema: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        (name, jsonschema::validator_for(&schema).expect("a schema"))
    };
    files.map(validator).collect()
});

/// Asserts that a value is an object of this name. Log lines of format 1, which 0.1 wrote, have no schema.
pub fn assert_valid(object: &str, value: &Value) {
    if value.get("format").is_some_and(|format| format != 2) {
        return;
    }
    let validator = VALIDATORS.get(object).unwrap_or_else(|| panic!("no schema `{object}`"));
    let errors = validator.iter_errors(value);
    let errors: Vec<String> =
        errors.map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{object}: {errors:#?}\n{value:#}");
}
