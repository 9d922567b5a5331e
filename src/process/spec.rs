//! What is to be started, and why it could not be.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::wire::Stage;
use crate::base::RunId;

/// A process to start: everything it gets is written here, nothing is inherited.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Whose process it is: an agent's or a server's name, for people who look at a process list.
    pub label: String,
    /// The run it belongs to; it and its children carry the id in `ADJUTANT_RUN`.
    pub run: RunId,
    /// The program: a path, or a name looked up in the `PATH` of `environment`.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Its working folder.
    pub folder: PathBuf,
    /// What holds for symlinks on the way to that folder.
    pub links: Links,
}

/// What holds for symlinks on the way to a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// They are followed.
    #[default]
    Follow,
    /// There are none, since the folder was resolved before. One that has come since leads elsewhere and is refused.
    Refuse,
}

/// Why a process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartFailed {
    /// No such program.
    #[error("there is no program `{}`: install it, or name another", program.display())]
    ProgramMissing {
        /// What was asked for.
        program: PathBuf,
    },
    /// The file is there, but the program that its `#!` line names is not.
    #[error("`{}` needs an interpreter that is not installed: look at its first line", program.display())]
    InterpreterMissing {
        /// What was asked for.
        program: PathBuf,
    },
    /// It is there, but no program that may be run.
    #[error("`{}` may not be executed: is it a program, and is it marked executable?", program.display())]
    NotExecutable {
        /// What was asked for.
        program: PathBuf,
    },
    /// The working folder cannot be entered.
    #[error("the working folder `{}` cannot be entered: create it, or set another `cwd`", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Arguments and environment together are more than the system takes.
    #[error("arguments and environment of `{}` are longer than the system allows: shorten the prompt or the environment", program.display())]
    TooLong {
        /// What was asked for.
        program: PathBuf,
    },
    /// Anything else that the system said.
    #[error("`{}` could not be started", program.display())]
    System {
        /// What was asked for.
        program: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The keeper that was to hold the process could not be started or went away.
    #[error(
        "the keeper of the process could not do its work: try again, and look at free memory and process limits"
    )]
    Keeper(#[source] io::Error),
}

impl StartFailed {
    /// The reason behind a step that failed with an error number.
    pub(super) fn from_report(launch: &Launch, stage: Stage, errno: i32) -> Self {
        let source = io::Error::from_raw_os_error(errno);
        match stage {
            Stage::Folder => Self::Folder { folder: launch.folder.clone(), source },
            Stage::Keeper => Self::Keeper(source),
            Stage::Program => Self::from_exec(launch, Errno::from_raw(errno), source),
        }
    }

    fn from_exec(launch: &Launch, errno: Errno, source: io::Error) -> Self {
        let program = launch.program.clone();
        match errno {
            Errno::ENOENT if is_there(launch) => Self::InterpreterMissing { program },
            Errno::ENOENT | Errno::ENOTDIR => Self::ProgramMissing { program },
            Errno::EACCES | Errno::ENOEXEC | Errno::EISDIR => Self::NotExecutable { program },
            Errno::E2BIG => Self::TooLong { program },
            _ => Self::System { program, source },
        }
    }
}

/// Whether the program is a path to a file that exists; a bare name never is.
fn is_there(launch: &Launch) -> bool {
    let bare = launch.program.parent() == Some(Path::new(""));
    !bare && launch.folder.join(&launch.program).exists()
}
