//! Problems as they are found: by path in the document, placed on a line only when there is one to show.

use std::path::Path;

use super::diagnostic::{Diagnostic, Severity};
use super::positions::{Place, Positions};
use crate::base::{one_line, shorten};

/// The most characters of a message.
const MAX_MESSAGE: usize = 1_000;

/// A finding that knows its path in the document, not yet its line.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) severity: Severity,
    pub(super) code: &'static str,
    pub(super) at: At,
    pub(super) message: String,
    pub(super) help: Option<String>,
}

/// What a problem is about.
#[derive(Clone, Debug)]
pub(super) enum At {
    /// The file as a whole.
    File,
    /// A place in the file that is already known.
    Place(Place),
    /// The key at this path, such as `permissions.deny`.
    Key(String),
    /// The value at this path, such as `permissions.deny[2]`.
    Value(String),
}

impl Problem {
    /// Says what to write instead.
    pub(super) fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(help.into());
        self
    }
}

/// Collects problems, so that an author sees several at once.
#[derive(Debug, Default)]
pub(super) struct Problems {
    pub(super) found: Vec<Problem>,
}

impl Problems {
    /// Something that makes the file unusable.
    pub(super) fn error(
        &mut self,
        code: &'static str,
        at: At,
        message: impl Into<String>,
    ) -> &mut Problem {
        self.add(Severity::Error, code, at, message.into())
    }

    /// Something that may not be what its author meant.
    pub(super) fn warning(
        &mut self,
        code: &'static str,
        at: At,
        message: impl Into<String>,
    ) -> &mut Problem {
        self.add(Severity::Warning, code, at, message.into())
    }

    /// An error or a warning, as `severity` says.
    pub(super) fn add(
        &mut self,
        severity: Severity,
        code: &'static str,
        at: At,
        message: String,
    ) -> &mut Problem {
        let index = self.found.len();
        self.found.push(Problem { severity, code, at, message, help: None });
        // INVARIANT: `index` is the place just pushed to.
        #[expect(clippy::indexing_slicing, reason = "the element was pushed one line above")]
        &mut self.found[index]
    }

    /// Whether anything makes the file unusable.
    pub(super) fn has_errors(&self) -> bool {
        self.found.iter().any(|problem| problem.severity == Severity::Error)
    }

    /// The findings with their lines, in the order of the file.
    pub(super) fn place(self, file: &Path, positions: &Positions) -> Vec<Diagnostic> {
        let mut placed: Vec<Diagnostic> =
            self.found.into_iter().map(|problem| place_one(problem, file, positions)).collect();
        placed.sort_by_key(|diagnostic| (diagnostic.line, diagnostic.column));
        placed
    }
}

fn place_one(problem: Problem, file: &Path, positions: &Positions) -> Diagnostic {
    let place = match &problem.at {
        At::File => Place::START,
        At::Place(place) => *place,
        At::Key(path) => positions.key(path),
        At::Value(path) => positions.value(path),
    };
    Diagnostic {
        severity: problem.severity,
        code: problem.code,
        file: file.to_path_buf(),
        line: place.line,
        column: place.column,
        length: place.length.max(1),
        // What was written is quoted in both; it must neither break a line nor fill a screen.
        message: shorten(&one_line(&problem.message), MAX_MESSAGE),
        help: problem.help.map(|help| shorten(&one_line(&help), MAX_MESSAGE)),
    }
}
