//! The identity of a caller: name and how it is known.

pub use crate::api::{Caller, KnownBy};
use crate::util::{RESERVED_MAIN, one_line, shorten};

impl Caller {
    /// Returns a caller without session and call id.
    pub fn new(name: impl Into<String>, known_by: KnownBy) -> Self {
        Self { name: name.into(), known_by, session_id: None, agent_id: None, tool_use_id: None }
    }

    /// Returns the main agent as fallback identity.
    pub fn main() -> Self {
        Self::new(RESERVED_MAIN, KnownBy::Fallback)
    }

    /// Returns the caller with the name given for a client (`--caller`). `main` is the default and counts as fallback.
    pub fn named(name: &str) -> Self {
        let known_by = if name == RESERVED_MAIN { KnownBy::Fallback } else { KnownBy::Asserted };
        Self::new(name, known_by)
    }

    /// Formats name and source for a message: `` `code-reviewer` (attested) ``. The name is cut to 80 characters.
    pub fn describe(&self) -> String {
        format!("`{}` ({})", shorten(&one_line(&self.name), 80), self.known_by)
    }

    /// Returns true if the identity is proven by pipe, attestation or token, not claimed or assumed.
    pub fn is_verified(&self) -> bool {
        match self.known_by {
            KnownBy::Pipe | KnownBy::Attested | KnownBy::Token => true,
            KnownBy::Asserted | KnownBy::Fallback => false,
        }
    }
}
