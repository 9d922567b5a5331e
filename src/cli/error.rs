//! Error of a command: code, reason, remedy. The code decides the exit status.

use std::error::Error;
use std::fmt::{self, Display};
use std::io;

use super::ExitStatus;
use super::output::error_with_causes;
use crate::api::ErrorObject;
use crate::config::SettingsError;
use crate::gateway::SignInError;
use crate::identity::TokenError;
use crate::outcome::{Code, Failure};
use crate::server::{HttpError, ServeError};
use crate::util::{nearest_names, one_line, shorten};

/// Declares the codes of commands, each with its name and exit status.
macro_rules! error_codes {
    ($($variant:ident = $name:literal, $exit:ident;)*) => {
        /// Code of an error, stable for programs. `docs/reference/error-codes.md` describes them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ErrorCode {
            /// A code of `run_subagent`; other commands use it for the same reason.
            Run(Code),
            $($variant,)*
        }

        impl ErrorCode {
            const OF_COMMANDS: &[Self] = &[$(Self::$variant),*];

            pub const fn exit_status(self) -> ExitStatus {
                match self {
                    Self::Run(code) => ExitStatus::of_run(code),
                    $(Self::$variant => ExitStatus::$exit,)*
                }
            }

            pub fn as_str(self) -> &'static str {
                match self {
                    Self::Run(code) => code.as_str(),
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

error_codes! {
    AlreadyExists = "ALREADY_EXISTS", Failure;
    DemoFailed = "DEMO_FAILED", Failure;
    ExtensionInvalid = "EXTENSION_INVALID", Failure;
    NotConfirmed = "NOT_CONFIRMED", Failure;
    ProjectFileInvalid = "PROJECT_FILE_INVALID", Failure;
    ServeFailed = "SERVE_FAILED", Failure;
    SignInFailed = "SIGN_IN_FAILED", Failure;
    StopFailed = "STOP_FAILED", Failure;
    AmbiguousId = "AMBIGUOUS_ID", Usage;
    ProjectNotFound = "PROJECT_NOT_FOUND", Usage;
    RefusedBelowAgent = "REFUSED_BELOW_AGENT", Usage;
    Undetermined = "UNDETERMINED", Usage;
    ExtensionNotFound = "EXTENSION_NOT_FOUND", NotFound;
    RunNotFound = "RUN_NOT_FOUND", NotFound;
    ServerNotFound = "SERVER_NOT_FOUND", NotFound;
    SessionNotFound = "SESSION_NOT_FOUND", NotFound;
    SignInNotFound = "SIGN_IN_NOT_FOUND", NotFound;
    TokenNotFound = "TOKEN_NOT_FOUND", NotFound;
    IoFailed = "IO_FAILED", Environment;
}

#[expect(non_upper_case_globals, reason = "used like the variants of this enum")]
impl ErrorCode {
    pub(crate) const AgentNotFound: Self = Self::Run(Code::AgentNotFound);
    pub(crate) const InvalidArgument: Self = Self::Run(Code::InvalidArgument);
    pub(crate) const StoreUnavailable: Self = Self::Run(Code::StoreUnavailable);

    pub fn all() -> impl Iterator<Item = Self> {
        Code::ALL.into_iter().map(Self::Run).chain(Self::OF_COMMANDS.iter().copied())
    }
}

/// Reason why a command has no result. Displayed as the sentence for stderr.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) code: ErrorCode,
    /// Does not begin with the code.
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    /// Ids that an ambiguous id may mean.
    matches: Vec<String>,
    /// Sentence with the code, for failures of runs.
    sentence: Option<String>,
}

impl CommandError {
    pub(crate) fn new(code: ErrorCode, message: impl Display) -> Self {
        Self { code, message: message.to_string(), help: None, matches: Vec::new(), sentence: None }
    }

    #[must_use]
    pub(crate) fn with_help(self, help: impl Display) -> Self {
        Self { help: Some(help.to_string()), ..self }
    }

    #[must_use]
    pub(crate) fn with_matches(self, matches: Vec<String>) -> Self {
        Self { matches, ..self }
    }

    /// Returns the object for `--json`.
    pub(crate) fn to_object(&self) -> ErrorObject {
        ErrorObject {
            help: self.help.clone(),
            matches: self.matches.clone(),
            ..ErrorObject::new(self.code.as_str(), self.message.as_str())
        }
    }

    /// Returns the error on an unknown `what` (`agent`), with similar names or the command that lists them.
    pub(crate) fn not_found<'n>(
        code: ErrorCode,
        what: &str,
        name: &str,
        known: impl IntoIterator<Item = &'n str>,
        list: &str,
    ) -> Self {
        let near = nearest_names(name, known);
        let help = match near.as_slice() {
            [] => format!("`{list}` shows the {what}s there are"),
            near => format!("did you mean `{}`?", near.join("` or `")),
        };
        let name = one_line(&shorten(name, 80));
        Self::new(code, format_args!("there is no {what} `{name}`")).with_help(help)
    }
}

impl Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.sentence, &self.help) {
            (Some(sentence), _) => f.write_str(sentence),
            (None, Some(help)) => write!(f, "{}: {help}", self.message),
            (None, None) => f.write_str(&self.message),
        }
    }
}

/// Returns an error with the code `INVALID_ARGUMENT`.
pub(crate) fn usage(message: impl Display) -> CommandError {
    CommandError::new(ErrorCode::InvalidArgument, message)
}

/// Returns an error with the code `STORE_UNAVAILABLE`.
pub(crate) fn store_unavailable(message: impl Display) -> CommandError {
    CommandError::new(ErrorCode::StoreUnavailable, message)
}

fn with_causes(code: ErrorCode, error: &dyn Error) -> CommandError {
    CommandError::new(code, error_with_causes(error))
}

impl From<Failure> for CommandError {
    fn from(failure: Failure) -> Self {
        let sentence = Some(failure.full_message());
        let error = Self::new(ErrorCode::Run(failure.code), failure.message);
        Self { sentence, ..error.with_help(failure.help) }
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        let found = with_causes(ErrorCode::IoFailed, &error);
        // The run registry reports its errors as `io::Error` with a code.
        match found.message.strip_prefix("STORE_UNAVAILABLE: ") {
            Some(message) => {
                Self { sentence: Some(found.message.clone()), ..store_unavailable(message) }
            }
            None => found,
        }
    }
}

impl From<SignInError> for CommandError {
    fn from(error: SignInError) -> Self {
        match &error {
            SignInError::Store { reason } => {
                Self { sentence: Some(error.to_string()), ..store_unavailable(reason) }
            }
            _ => with_causes(ErrorCode::SignInFailed, &error),
        }
    }
}

impl From<SettingsError> for CommandError {
    fn from(error: SettingsError) -> Self {
        with_causes(ErrorCode::ProjectNotFound, &error)
    }
}

impl From<TokenError> for CommandError {
    fn from(error: TokenError) -> Self {
        let code = match error {
            TokenError::Unreadable { .. } | TokenError::Unwritable { .. } => {
                ErrorCode::StoreUnavailable
            }
            TokenError::InvalidCaller { .. } | TokenError::LifetimeTooLong => {
                ErrorCode::InvalidArgument
            }
        };
        with_causes(code, &error)
    }
}

impl From<HttpError> for CommandError {
    fn from(error: HttpError) -> Self {
        let code = match error {
            HttpError::Options(_) | HttpError::Tls { .. } => ErrorCode::InvalidArgument,
            HttpError::Tokens { .. } => ErrorCode::StoreUnavailable,
            HttpError::Listen { .. } => ErrorCode::IoFailed,
        };
        with_causes(code, &error)
    }
}

impl From<ServeError> for CommandError {
    fn from(error: ServeError) -> Self {
        with_causes(ErrorCode::ServeFailed, &error)
    }
}
