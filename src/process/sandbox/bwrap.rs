//! `adjutant __sandbox`: turns a [`SandboxSpec`] into options and files for bubblewrap and executes it.
//!
//! Runs as the child of the supervisor and becomes `bwrap` by `exec`, so that the supervisor's forking thread is bwrap's
//! parent: `--die-with-parent` follows that thread.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{IntoRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use super::seccomp;
use super::spec::{Mount, MountKind, SandboxSpec};
use crate::config::ADJUTANT_AGENT;
use crate::process::hidden_commands::supervisor_program;
use crate::process::{ProcessSpec, SymlinkPolicy};

/// Carries the [`SandboxOrder`] to `__sandbox`. In the environment, because only this user can read it and it is gone
/// after `exec`; the real variables of the program must not be in the environment of a process outside.
const ORDER_VARIABLE: &str = "ADJUTANT_SANDBOX";
/// Exit status if the sandbox could not be set up, as in bwrap.
const EXIT_FAILED: u8 = 1;

/// User and group inside; on the host it is the user who runs bwrap.
const INSIDE_ID: &str = "1000";

const ISOLATION: [&str; 18] = [
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--disable-userns",
    "--die-with-parent",
    "--new-session",
    "--as-pid-1",
    "--hostname",
    "sandbox",
    "--uid",
    INSIDE_ID,
    "--gid",
    INSIDE_ID,
    "--cap-drop",
    "ALL",
];

#[derive(Serialize, Deserialize)]
struct SandboxOrder {
    bwrap: PathBuf,
    spec: SandboxSpec,
}

/// Returns the specification of a process that runs `process` in the sandbox.
///
/// The environment of `process` is dropped: the sandbox has that of `spec`.
///
/// # Errors
///
/// If a path of the sandbox is not UTF-8.
pub fn sandboxed(
    process: ProcessSpec,
    bwrap: &Path,
    spec: &SandboxSpec,
) -> io::Result<ProcessSpec> {
    let order = SandboxOrder { bwrap: bwrap.to_path_buf(), spec: spec.clone() };
    let order = serde_json::to_string(&order)?;
    let own = ["__sandbox".into(), process.program.into_os_string()];
    Ok(ProcessSpec {
        program: supervisor_program(),
        arguments: own.into_iter().chain(process.arguments).collect(),
        environment: vec![
            (ADJUTANT_AGENT.into(), spec.agent.clone().into()),
            (ORDER_VARIABLE.into(), order.into()),
        ],
        working_dir: "/".into(),
        symlinks: SymlinkPolicy::Follow,
        ..process
    })
}

/// Runs `__sandbox PROGRAM ARGUMENT…`; returns only on failure.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Err(error) = execute(arguments);
    let _ = writeln!(io::stderr(), "adjutant: the sandbox could not be set up: {error}");
    ExitCode::from(EXIT_FAILED)
}

fn execute(program: impl Iterator<Item = OsString>) -> io::Result<Infallible> {
    let variable = |name: &str| std::env::var(name).map_err(io::Error::other);
    let mut order: SandboxOrder = serde_json::from_str(&variable(ORDER_VARIABLE)?)?;
    let run = variable(crate::config::env_vars::ADJUTANT_RUN)?;
    let marker = super::SandboxVariable::new(crate::config::env_vars::ADJUTANT_RUN, run, "");
    order.spec.variables.push(marker);
    // Descriptors of the process that started us must not reach the sandbox; those made below must.
    close_fds::set_fds_cloexec(3, &[]);
    let mut options = options(&order.spec, &mut memory_file)?;
    for filter in seccomp::filters()? {
        options.push("--add-seccomp-fd".into());
        options.push(memory_file(&seccomp::to_bytes(&filter))?.to_string().into());
    }
    let mut joined = Vec::new();
    for option in options {
        joined.extend(option.into_vec());
        joined.push(0);
    }
    let options = memory_file(&joined)?;
    // bwrap has an empty environment: it can be read by processes inside until the relay has replaced it.
    let error = Command::new(&order.bwrap)
        .env_clear()
        .args(["--args", &options.to_string(), "--"])
        .args(relay_command(&order.spec))
        .args(program)
        .exec();
    Err(error)
}

fn relay_command(spec: &SandboxSpec) -> Vec<OsString> {
    let forwards = spec.forwards.iter().map(|forward| {
        let mut text = OsString::from(format!("{}=", forward.port));
        text.push(&forward.socket);
        text
    });
    let own =
        [spec.relay.clone().into(), "__relay".into(), format!("--agent={}", spec.agent).into()];
    own.into_iter().chain(forwards).chain(["--".into()]).collect()
}

/// Creates a file in memory that is inherited by bwrap, and returns its number.
fn memory_file(content: &[u8]) -> io::Result<RawFd> {
    let mut file = File::from(memfd_create(c"sandbox", MemfdFlags::empty())?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file.into_raw_fd())
}

/// Returns bwrap's options for a sandbox. `add_file` provides a descriptor with the given content.
fn options(
    spec: &SandboxSpec,
    add_file: &mut impl FnMut(&[u8]) -> io::Result<RawFd>,
) -> io::Result<Vec<OsString>> {
    let mut options: Vec<OsString> = ISOLATION.map(OsString::from).to_vec();
    for mount in &spec.mounts {
        options.extend(mount_options(mount, add_file)?);
    }
    options.extend(["--remount-ro", "/", "--chdir"].map(OsString::from));
    options.push(spec.working_dir.clone().into());
    options.push("--clearenv".into());
    for variable in &spec.variables {
        options.extend(["--setenv", &variable.name, &variable.value].map(OsString::from));
    }
    match options.iter().any(|option| option.as_bytes().contains(&0)) {
        true => Err(io::Error::new(io::ErrorKind::InvalidInput, "a value with a NUL byte")),
        false => Ok(options),
    }
}

fn mount_options(
    mount: &Mount,
    add_file: &mut impl FnMut(&[u8]) -> io::Result<RawFd>,
) -> io::Result<Vec<OsString>> {
    let mut file = |content: &str| add_file(content.as_bytes()).map(|number| number.to_string());
    let (words, source): (Vec<String>, Option<&OsStr>) = match &mount.kind {
        MountKind::ReadOnly { source } => (strings(["--ro-bind"]), Some(source.as_os_str())),
        MountKind::Writable { source } => (strings(["--bind"]), Some(source.as_os_str())),
        MountKind::Private { mode, max_bytes } => {
            let (mode, max_bytes) = (format!("{mode:04o}"), max_bytes.to_string());
            (strings(["--perms", &mode, "--size", &max_bytes, "--tmpfs"]), None)
        }
        MountKind::Folder { mode } => (strings(["--perms", &format!("{mode:04o}"), "--dir"]), None),
        MountKind::Link { target } => (strings(["--symlink"]), Some(target.as_os_str())),
        MountKind::Text { content } => (strings(["--ro-bind-data", &file(content)?]), None),
        MountKind::Copy { content } => {
            (strings(["--perms", "0600", "--file", &file(content)?]), None)
        }
        MountKind::Seal => (strings(["--remount-ro"]), None),
        MountKind::Proc => (strings(["--proc"]), None),
        MountKind::Devices => (strings(["--dev"]), None),
    };
    let words = words.into_iter().map(OsString::from);
    let source = source.map(OsStr::to_os_string);
    Ok(words.chain(source).chain([mount.path.clone().into()]).collect())
}

fn strings<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::sandbox::SandboxVariable;

    fn texts(spec: &SandboxSpec) -> (String, Vec<String>) {
        let mut files = Vec::new();
        let mut add_file = |content: &[u8]| {
            files.push(String::from_utf8_lossy(content).into_owned());
            Ok(RawFd::try_from(files.len()).unwrap() + 9)
        };
        let options = options(spec, &mut add_file).unwrap();
        let words: Vec<_> =
            options.iter().skip(ISOLATION.len()).map(|o| o.to_string_lossy()).collect();
        (words.join(" "), files)
    }

    fn mount(path: &str, kind: MountKind) -> Mount {
        Mount::new(path, kind, "test")
    }

    #[test]
    fn mounts_are_made_in_order_and_sealed_last() {
        let spec = SandboxSpec {
            mounts: vec![
                mount("/usr", MountKind::ReadOnly { source: "/usr".into() }),
                mount("/bin", MountKind::Link { target: "usr/bin".into() }),
                mount("/proc", MountKind::Proc),
                mount("/dev", MountKind::Devices),
                mount("/tmp", MountKind::Private { mode: 0o1777, max_bytes: 512 }),
                mount("/work", MountKind::Writable { source: "/real/work".into() }),
                mount("/etc/passwd", MountKind::Text { content: "agent:x".into() }),
                mount("/home/.claude.json", MountKind::Copy { content: "{}".into() }),
                mount("/opt", MountKind::Folder { mode: 0o755 }),
                mount("/dev", MountKind::Seal),
            ],
            variables: vec![SandboxVariable::new("A", "b c", "test")],
            working_dir: "/work".into(),
            ..SandboxSpec::default()
        };
        let (options, files) = texts(&spec);
        assert_eq!(
            options,
            "--ro-bind /usr /usr --symlink usr/bin /bin --proc /proc --dev /dev --perms 1777 --size 512 --tmpfs /tmp \
             --bind /real/work /work --ro-bind-data 10 /etc/passwd --perms 0600 --file 11 /home/.claude.json \
             --perms 0755 --dir /opt --remount-ro /dev --remount-ro / --chdir /work --clearenv --setenv A b c"
        );
        assert_eq!(files, ["agent:x", "{}"]);
    }

    #[test]
    fn values_with_a_nul_byte_cannot_become_options() {
        let spec = SandboxSpec {
            variables: vec![SandboxVariable::new("A", "b\0--bind\0/\0/", "test")],
            ..SandboxSpec::default()
        };
        assert!(options(&spec, &mut |_| Ok(3)).is_err());
    }

    #[test]
    fn the_environment_of_the_process_outside_has_no_variable_of_the_program() {
        let process = ProcessSpec {
            label: "a".into(),
            run: crate::util::RunId::new(),
            program: "/opt/claude".into(),
            arguments: vec!["-p".into()],
            environment: vec![("LD_PRELOAD".into(), "evil.so".into())],
            working_dir: "/work".into(),
            symlinks: SymlinkPolicy::Refuse,
        };
        let spec = SandboxSpec { agent: "reader".into(), ..SandboxSpec::default() };
        let outside = sandboxed(process, Path::new("/usr/bin/bwrap"), &spec).unwrap();
        let names: Vec<_> = outside.environment.iter().map(|(name, _)| name.as_os_str()).collect();
        assert_eq!(names, [ADJUTANT_AGENT, ORDER_VARIABLE]);
        assert_eq!(outside.arguments, ["__sandbox", "/opt/claude", "-p"]);
    }
}
