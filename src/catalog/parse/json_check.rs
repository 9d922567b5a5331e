//! JSON files beside the agents: their shape, with the line of what is wrong.

use std::path::Path;

use super::diagnostic::{Diagnostic, Severity};
use super::load::whole_file;
use crate::base::{Lined, LinedMember, LinedValue, parse_json_lines};

/// Collects what is wrong in one JSON file.
pub(super) struct JsonCheck<'f> {
    file: &'f Path,
    pub(super) found: Vec<Diagnostic>,
}

impl<'f> JsonCheck<'f> {
    pub(super) fn new(file: &'f Path) -> Self {
        Self { file, found: Vec::new() }
    }

    /// The value of the file, if it is JSON.
    pub(super) fn parse(&mut self, text: &str) -> Option<LinedValue> {
        match parse_json_lines(text) {
            Ok(value) => Some(value),
            Err(error) => {
                self.found.push(Diagnostic {
                    line: number(error.line),
                    column: number(error.column),
                    help: Some("check commas, quotes and brackets".to_owned()),
                    ..whole_file(self.file, "json-syntax", format!("this is not JSON: {error}"))
                });
                None
            }
        }
    }

    /// Something that makes the file unusable.
    pub(super) fn error(&mut self, code: &'static str, line: u32, message: String, help: &str) {
        self.found.push(Diagnostic {
            line: number(line),
            help: (!help.is_empty()).then(|| help.to_owned()),
            ..whole_file(self.file, code, message)
        });
    }

    /// Something that may not be what its author meant.
    pub(super) fn warning(&mut self, code: &'static str, line: u32, message: String, help: &str) {
        self.error(code, line, message, help);
        if let Some(last) = self.found.last_mut() {
            last.severity = Severity::Warning;
        }
    }

    /// The members of an object, none of them twice.
    pub(super) fn object<'v>(
        &mut self,
        value: &'v LinedValue,
        what: &str,
    ) -> Option<&'v [LinedMember]> {
        let Lined::Object(members) = &value.value else {
            let message = format!("{what} must be an object, not {}", value.value.kind());
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

    /// The items of a list.
    pub(super) fn list<'v>(
        &mut self,
        value: &'v LinedValue,
        what: &str,
    ) -> Option<&'v [LinedValue]> {
        if let Lined::Array(items) = &value.value {
            return Some(items);
        }
        let message = format!("{what} must be a list, not {}", value.value.kind());
        self.error("wrong-type", value.line, message, "");
        None
    }

    /// Wants a text.
    pub(super) fn text(&mut self, value: &LinedValue, what: &str) {
        if !matches!(value.value, Lined::String(_)) {
            let message = format!("{what} must be text, not {}", value.value.kind());
            self.error("wrong-type", value.line, message, "put it in quotes");
        }
    }

    /// Wants a member of this name, with a text.
    pub(super) fn required_text(&mut self, members: &[LinedMember], key: &str, line: u32) {
        if let Some(found) = member(members, key) {
            self.text(&found.value, &format!("`{key}`"));
        } else {
            let help = format!("add `\"{key}\": \"…\"`");
            self.error("missing-key", line, format!("there is no `{key}`"), &help);
        }
    }
}

/// The member of this name.
pub(super) fn member<'v>(members: &'v [LinedMember], key: &str) -> Option<&'v LinedMember> {
    members.iter().find(|member| member.key == key)
}

fn number(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX).max(1)
}
