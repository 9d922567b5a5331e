//! Specification of a process to start, and the errors of starting it.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::supervisor_protocol::SpawnStage;
use crate::util::RunId;

/// Everything a new process gets; nothing is inherited.
#[derive(Clone, Debug)]
pub struct ProcessSpec {
    /// Name of the agent or server, shown in the supervisor's arguments in process lists.
    pub label: String,
    /// Run of the process; its descendants inherit the id in `ADJUTANT_RUN`.
    pub run: RunId,
    /// A path, or a name that is searched for in the `PATH` of `environment`.
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// The complete environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Working directory.
    pub working_dir: PathBuf,
    /// Symbolic links in the path of the working directory.
    pub symlinks: SymlinkPolicy,
}

/// Handling of symbolic links in the path of the working directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SymlinkPolicy {
    #[default]
    Follow,
    /// The path was resolved before; a link that appeared since is refused.
    Refuse,
}

/// Reasons why a process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("there is no program `{}`: install it, or name another", program.display())]
    ProgramMissing { program: PathBuf },
    /// The script exists, but the interpreter in its `#!` line does not.
    #[error("`{}` needs an interpreter that is not installed: look at its first line", program.display())]
    InterpreterMissing { program: PathBuf },
    /// The file exists but is not an executable program.
    #[error("`{}` may not be executed: is it a program, and is it marked executable?", program.display())]
    NotExecutable { program: PathBuf },
    /// The working directory cannot be entered.
    #[error("the working folder `{}` cannot be entered: create it, or set another `cwd`", folder.display())]
    WorkingDir {
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Arguments and environment exceed the limit of the system (`E2BIG`).
    #[error("arguments and environment of `{}` are longer than the system allows: shorten the prompt or the environment", program.display())]
    ArgumentsTooLong { program: PathBuf },
    #[error("`{}` could not be started", program.display())]
    System {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The supervisor could not be started or exited.
    #[error(
        "the supervisor of the process failed: try again, and look at free memory and process limits"
    )]
    Supervisor(#[source] io::Error),
}

impl SpawnError {
    /// Maps a stage and an errno reported by the supervisor to an error.
    pub(crate) fn from_report(launch: &ProcessSpec, stage: SpawnStage, errno: i32) -> Self {
        let source = io::Error::from_raw_os_error(errno);
        match stage {
            SpawnStage::WorkingDir => {
                Self::WorkingDir { folder: launch.working_dir.clone(), source }
            }
            SpawnStage::Supervisor => Self::Supervisor(source),
            SpawnStage::Program => Self::from_exec(launch, Errno::from_raw(errno), source),
        }
    }

    fn from_exec(launch: &ProcessSpec, errno: Errno, source: io::Error) -> Self {
        let program = launch.program.clone();
        match errno {
            Errno::ENOENT if program_file_exists(launch) => Self::InterpreterMissing { program },
            Errno::ENOENT | Errno::ENOTDIR => Self::ProgramMissing { program },
            Errno::EACCES | Errno::ENOEXEC | Errno::EISDIR => Self::NotExecutable { program },
            Errno::E2BIG => Self::ArgumentsTooLong { program },
            _ => Self::System { program, source },
        }
    }
}

/// Returns true if the program is a path to an existing file; false for a bare name.
fn program_file_exists(launch: &ProcessSpec) -> bool {
    let bare = launch.program.parent() == Some(Path::new(""));
    !bare && launch.working_dir.join(&launch.program).exists()
}
