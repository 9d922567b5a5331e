//! Problems located by document path; line and column are resolved only if there are any.

use std::path::Path;

use super::diagnostic::{Diagnostic, Severity};
use crate::catalog::parse::{SourcePosition, SourcePositions};
use crate::util::{one_line, shorten};

/// Maximum characters of a message or help text.
const MAX_MESSAGE_CHARS: usize = 1_000;

/// A finding with its path in the document.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) severity: Severity,
    pub(crate) code: &'static str,
    pub(crate) at: ProblemTarget,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

/// Target of a [`Problem`].
#[derive(Clone, Debug)]
pub(crate) enum ProblemTarget {
    /// The whole file.
    File,
    /// A known position.
    Place(SourcePosition),
    /// The key at this path, such as `permissions.deny`.
    Key(String),
    /// The value at this path, such as `permissions.deny[2]`.
    Value(String),
}

impl Problem {
    /// Sets the help text.
    pub(crate) fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(help.into());
        self
    }
}

/// Collects problems, so that all are reported at once.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    pub(crate) found: Vec<Problem>,
}

impl Problems {
    /// Adds a problem that makes the file unusable.
    pub(crate) fn error(
        &mut self,
        code: &'static str,
        at: ProblemTarget,
        message: impl Into<String>,
    ) -> &mut Problem {
        self.add(Severity::Error, code, at, message.into())
    }

    /// Adds a problem with which the file is still used.
    pub(crate) fn warning(
        &mut self,
        code: &'static str,
        at: ProblemTarget,
        message: impl Into<String>,
    ) -> &mut Problem {
        self.add(Severity::Warning, code, at, message.into())
    }

    pub(crate) fn add(
        &mut self,
        severity: Severity,
        code: &'static str,
        at: ProblemTarget,
        message: String,
    ) -> &mut Problem {
        let index = self.found.len();
        self.found.push(Problem { severity, code, at, message, help: None });
        // INVARIANT: `index` is the element pushed above.
        #[expect(clippy::indexing_slicing, reason = "the element was pushed one line above")]
        &mut self.found[index]
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.found.iter().any(|problem| problem.severity == Severity::Error)
    }

    /// Resolves the positions, which are parsed only if there are problems, and sorts by line and column.
    pub(crate) fn locate(
        self,
        file: &Path,
        positions: impl FnOnce() -> SourcePositions,
    ) -> Vec<Diagnostic> {
        if self.found.is_empty() {
            return Vec::new();
        }
        let positions = positions();
        let mut placed: Vec<Diagnostic> =
            self.found.into_iter().map(|problem| locate_one(problem, file, &positions)).collect();
        placed.sort_by_key(|diagnostic| (diagnostic.line, diagnostic.column));
        placed
    }
}

fn locate_one(problem: Problem, file: &Path, positions: &SourcePositions) -> Diagnostic {
    let position = match &problem.at {
        ProblemTarget::File => SourcePosition::START,
        ProblemTarget::Place(position) => *position,
        ProblemTarget::Key(path) => positions.key_position(path),
        ProblemTarget::Value(path) => positions.value_position(path),
    };
    Diagnostic {
        severity: problem.severity,
        code: problem.code,
        file: file.to_path_buf(),
        line: position.line,
        column: position.column,
        length: position.length.max(1),
        // Both texts quote user input, so they are limited to one line and a maximum length.
        message: shorten(&one_line(&problem.message), MAX_MESSAGE_CHARS),
        help: problem.help.map(|help| shorten(&one_line(&help), MAX_MESSAGE_CHARS)),
    }
}
