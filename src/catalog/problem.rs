//! Problems located by document path; line and column are resolved only if there are any.

use std::cell::RefCell;
use std::path::Path;

use super::diagnostic::{Diagnostic, Severity};
use crate::catalog::parse::{SourcePosition, SourcePositions};
use crate::util::{one_line, shorten};

/// Maximum characters of a message or help text.
const MAX_MESSAGE_CHARS: usize = 1_000;

/// A finding with its path in the document.
#[derive(Debug)]
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

/// Collects problems, so that all are reported at once.
#[derive(Debug, Default)]
pub(crate) struct Problems(RefCell<Vec<Problem>>);

/// The problem that was added last.
pub(crate) struct AddedProblem<'p>(&'p Problems);

impl AddedProblem<'_> {
    pub(crate) fn help(self, help: impl Into<String>) {
        if let Some(problem) = self.0.0.borrow_mut().last_mut() {
            problem.help = Some(help.into());
        }
    }
}

impl Problems {
    /// Adds a problem that makes the file unusable.
    pub(crate) fn error(
        &self,
        code: &'static str,
        at: ProblemTarget,
        message: impl Into<String>,
    ) -> AddedProblem<'_> {
        self.add(Severity::Error, code, at, message)
    }

    pub(crate) fn add(
        &self,
        severity: Severity,
        code: &'static str,
        at: ProblemTarget,
        message: impl Into<String>,
    ) -> AddedProblem<'_> {
        let problem = Problem { severity, code, at, message: message.into(), help: None };
        self.0.borrow_mut().push(problem);
        AddedProblem(self)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.0.borrow().iter().any(|problem| problem.severity == Severity::Error)
    }

    /// Removes and returns all problems.
    pub(crate) fn take(&self) -> Vec<Problem> {
        self.0.take()
    }

    /// Resolves the positions, which are parsed only if there are problems, and sorts by line and column.
    pub(crate) fn locate(
        self,
        file: &Path,
        positions: impl FnOnce() -> SourcePositions,
    ) -> Vec<Diagnostic> {
        if self.len() == 0 {
            return Vec::new();
        }
        let positions = positions();
        let mut placed: Vec<Diagnostic> =
            self.take().into_iter().map(|problem| locate_one(problem, file, &positions)).collect();
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
