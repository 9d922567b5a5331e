//! `sessions.json` as text: written for people, read with care, and salvaged entry by entry.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::conversation::Conversation;
use super::name::ConversationName;
use super::salvage::salvage;
use crate::base::{one_line, shorten};

const FORMAT: u64 = 1;

/// Every conversation by its name.
pub(super) type View = BTreeMap<ConversationName, Arc<Conversation>>;

/// What a text turned out to be.
#[derive(Debug, PartialEq)]
pub(super) enum Reading {
    /// As we write it.
    Sound(View),
    /// Written by a newer Adjutant; what could be understood of it.
    Newer { format: u64, view: View },
    /// Torn, edited or something else; what is sound in it.
    Damaged { why: String, view: View },
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StoreFile {
    /// The number of this format; a file with a higher one is left alone.
    #[schemars(range(min = 1))]
    format: u64,
    /// All conversations, ordered by agent and key.
    conversations: Vec<Conversation>,
}

#[derive(Serialize)]
struct StoreText<'a> {
    format: u64,
    conversations: Vec<&'a Conversation>,
}

/// The text for a set of conversations.
pub(super) fn render(view: &View) -> Vec<u8> {
    let conversations = view.values().map(AsRef::as_ref).collect();
    // INVARIANT: the types hold nothing that JSON cannot say, so this does not fail.
    let mut text =
        serde_json::to_vec_pretty(&StoreText { format: FORMAT, conversations }).unwrap_or_default();
    text.push(b'\n');
    text
}

/// Reads a text, whatever it is.
pub(super) fn read(bytes: &[u8]) -> Reading {
    match serde_json::from_slice::<StoreFile>(bytes) {
        Ok(file) if file.format == FORMAT => unique(file.conversations),
        Ok(file) if file.format > FORMAT => newer(file.format, bytes),
        Ok(file) => damaged(format!("there is no format {}", file.format), bytes),
        Err(error) => match stated_format(bytes) {
            Some(format) if format > FORMAT => newer(format, bytes),
            _ => damaged(shorten(&one_line(&error.to_string()), 200), bytes),
        },
    }
}

/// The JSON Schema of `sessions.json`.
pub fn store_schema() -> Value {
    let mut schema = schemars::schema_for!(StoreFile);
    schema.insert("title".to_owned(), "data/sessions.json".into());
    schema.insert(
        "description".to_owned(),
        "The conversations of agents with `session: true`. See docs/sessions.md.".into(),
    );
    schema.to_value()
}

fn unique(conversations: Vec<Conversation>) -> Reading {
    let stated = conversations.len();
    let view = collect(conversations);
    if view.len() == stated {
        Reading::Sound(view)
    } else {
        Reading::Damaged { why: "a conversation stands in it twice".to_owned(), view }
    }
}

fn newer(format: u64, bytes: &[u8]) -> Reading {
    Reading::Newer { format, view: collect(salvage(bytes)) }
}

fn damaged(why: String, bytes: &[u8]) -> Reading {
    let why = if bytes.is_empty() { "it is empty".to_owned() } else { why };
    Reading::Damaged { why, view: collect(salvage(bytes)) }
}

/// Of two entries for one conversation the one that was used last is true.
fn collect(conversations: Vec<Conversation>) -> View {
    let mut view = View::new();
    for conversation in conversations {
        let name = conversation.name();
        let newest = view.get(&name).is_none_or(|other| other.last_used <= conversation.last_used);
        if newest {
            view.insert(name, Arc::new(conversation));
        }
    }
    view
}

/// The number after `"format"`, also in a text that is torn further down.
fn stated_format(bytes: &[u8]) -> Option<u64> {
    let head = String::from_utf8_lossy(bytes.get(..256).unwrap_or(bytes)).into_owned();
    let after = head.split_once("\"format\"")?.1;
    let number = after.trim_start().strip_prefix(':')?.trim_start();
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}
