//! Validation of JSON files beside the agents, with the line of each finding.

use std::path::Path;

use super::super::diagnostic::{Diagnostic, Severity};
use super::super::load::file_error;
use crate::util::{SpannedKind, SpannedMember, SpannedValue, parse_spanned_json};

/// Collects the findings of one JSON file.
pub(crate) struct JsonCheck<'f> {
    file: &'f Path,
    pub(crate) found: Vec<Diagnostic>,
}

impl<'f> JsonCheck<'f> {
    pub(crate) fn new(file: &'f Path) -> Self {
        Self { file, found: Vec::new() }
    }

    /// Parses the file; reports a syntax error and returns `None`.
    pub(crate) fn parse(&mut self, text: &str) -> Option<SpannedValue> {
        match parse_spanned_json(text) {
            Ok(value) => Some(value),
            Err(error) => {
                self.found.push(Diagnostic {
                    line: position_number(error.line),
                    column: position_number(error.column),
                    help: Some("check commas, quotes and brackets".to_owned()),
                    ..file_error(self.file, "json-syntax", format!("this is not JSON: {error}"))
                });
                None
            }
        }
    }

    /// Adds a problem that makes the file unusable.
    pub(crate) fn error(&mut self, code: &'static str, line: u32, message: String, help: &str) {
        self.found.push(Diagnostic {
            line: position_number(line),
            help: (!help.is_empty()).then(|| help.to_owned()),
            ..file_error(self.file, code, message)
        });
    }

    /// Adds a problem with which the file is still used.
    pub(crate) fn warning(&mut self, code: &'static str, line: u32, message: String, help: &str) {
        self.error(code, line, message, help);
        if let Some(last) = self.found.last_mut() {
            last.severity = Severity::Warning;
        }
    }

    /// Returns the members of an object; reports duplicate keys.
    pub(crate) fn object<'v>(
        &mut self,
        value: &'v SpannedValue,
        what: &str,
    ) -> Option<&'v [SpannedMember]> {
        let SpannedKind::Object(members) = &value.kind else {
            let message = format!("{what} must be an object, not {}", value.kind.type_name());
            self.error("wrong-type", value.line, message, "");
            return None;
        };
        for (index, member) in members.iter().enumerate() {
            if members.iter().take(index).any(|earlier| earlier.key == member.key) {
                let message = format!("`{}` is given twice", member.key);
                self.error("duplicate-key", member.line, message, "keep one of them");
            }
        }
        Some(members)
    }

    pub(crate) fn list<'v>(
        &mut self,
        value: &'v SpannedValue,
        what: &str,
    ) -> Option<&'v [SpannedValue]> {
        if let SpannedKind::Array(items) = &value.kind {
            return Some(items);
        }
        let message = format!("{what} must be a list, not {}", value.kind.type_name());
        self.error("wrong-type", value.line, message, "");
        None
    }

    /// Reports a value that is not a string.
    pub(crate) fn text(&mut self, value: &SpannedValue, what: &str) {
        if !matches!(value.kind, SpannedKind::String(_)) {
            let message = format!("{what} must be text, not {}", value.kind.type_name());
            self.error("wrong-type", value.line, message, "put it in quotes");
        }
    }

    /// Reports a missing member, or one that is not a string.
    pub(crate) fn required_text(&mut self, members: &[SpannedMember], key: &str, line: u32) {
        if let Some(found) = member(members, key) {
            self.text(&found.value, &format!("`{key}`"));
        } else {
            let help = format!("add `\"{key}\": \"…\"`");
            self.error("missing-key", line, format!("there is no `{key}`"), &help);
        }
    }
}

pub(crate) fn member<'v>(members: &'v [SpannedMember], key: &str) -> Option<&'v SpannedMember> {
    members.iter().find(|member| member.key == key)
}

fn position_number(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX).max(1)
}
