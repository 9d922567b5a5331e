//! Can this machine make a sandbox? Tried with the options of a real one, not guessed from versions.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::SandboxSpec;
use super::bwrap::sandboxed;
use crate::process::{
    CommandEnd, ProcessEnd, ProcessSpec, SymlinkPolicy, find_program, run_command,
};
use crate::util::RunId;

/// Limit of a probe; it takes about 10 ms.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// Why no sandbox can be made here, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}. {advice}")]
pub struct SandboxRefusal {
    /// What the system said, as it said it.
    pub reason: String,
    pub advice: String,
}

impl SandboxRefusal {
    /// Adds advice to what bubblewrap or the relay has written.
    pub fn of_system(reason: &str) -> Self {
        Self { reason: reason.to_owned(), advice: advice(reason, &os_release()) }
    }
}

/// Finds bubblewrap: the file that `ADJUTANT_BWRAP` names, or `bwrap` on the `PATH`.
pub fn find_bwrap(named: Option<&Path>, path: Option<&OsStr>) -> Result<PathBuf, SandboxRefusal> {
    let wanted = named.unwrap_or(Path::new("bwrap"));
    let found = find_program(wanted, path).and_then(|program| program.canonicalize().ok());
    found.ok_or_else(|| SandboxRefusal {
        reason: match named {
            Some(file) => format!("`{}` (from ADJUTANT_BWRAP) is no program", file.display()),
            None => "`bwrap` is not on the PATH".to_owned(),
        },
        advice: install_advice(&os_release()),
    })
}

/// Starts `program` in the sandbox `spec` and waits until it has exited with status 0.
///
/// `spec` has to be that of a real run, so that everything which can be refused is tried.
pub async fn probe(
    bwrap: &Path,
    spec: &SandboxSpec,
    program: &Path,
    arguments: &[&str],
) -> Result<(), SandboxRefusal> {
    let process = ProcessSpec {
        label: "sandbox-probe".to_owned(),
        run: RunId::new(),
        program: program.to_path_buf(),
        arguments: arguments.iter().map(Into::into).collect(),
        environment: Vec::new(),
        working_dir: "/".into(),
        symlinks: SymlinkPolicy::Follow,
    };
    let refused = |reason: String| SandboxRefusal::of_system(&reason);
    let process = sandboxed(process, bwrap, spec).map_err(|error| refused(error.to_string()))?;
    let output = run_command(process, Vec::new(), PROBE_TIMEOUT, 1 << 16)
        .await
        .map_err(|error| refused(error.to_string()))?;
    match output.end {
        CommandEnd::Exited(ProcessEnd::Exited(0)) => Ok(()),
        CommandEnd::TimedOut => {
            Err(refused(format!("the probe took longer than {PROBE_TIMEOUT:?}")))
        }
        CommandEnd::Exited(end) => {
            let said = output.stderr.trim().trim_end_matches('.');
            Err(refused(match said {
                "" => format!("the probe ended with {end:?} and said nothing"),
                said => said.to_owned(),
            }))
        }
    }
}

fn os_release() -> String {
    fs::read_to_string("/etc/os-release").unwrap_or_default()
}

/// Returns the value of `ID` and `ID_LIKE` of `/etc/os-release`.
fn distributions(os_release: &str) -> Vec<&str> {
    let values = os_release
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")));
    values.flat_map(|value| value.trim_matches('"').split_whitespace()).collect()
}

fn install_advice(os_release: &str) -> String {
    let known = distributions(os_release);
    let command = [
        (&["debian", "ubuntu"][..], "apt-get install bubblewrap"),
        (&["fedora", "rhel", "centos"][..], "dnf install bubblewrap"),
        (&["arch"][..], "pacman -S bubblewrap"),
        (&["alpine"][..], "apk add bubblewrap"),
        (&["suse", "opensuse"][..], "zypper install bubblewrap"),
        (&["nixos"][..], "nix-env -iA nixos.bubblewrap"),
    ]
    .into_iter()
    .find(|(names, _)| names.iter().any(|name| known.contains(name)));
    match command {
        Some((_, command)) => format!("Install it with `{command}`, or name it in ADJUTANT_BWRAP"),
        None => {
            "Install the package `bubblewrap`, or name its program in ADJUTANT_BWRAP".to_owned()
        }
    }
}

/// Returns what to do about a refusal of the kernel or of bubblewrap.
fn advice(reason: &str, os_release: &str) -> String {
    let known = distributions(os_release);
    let has = |text: &str| reason.contains(text);
    if has("No permissions to create new namespace") || has("setting up uid map: Permission denied")
    {
        return match () {
            () if known.contains(&"ubuntu") => {
                "Ubuntu 24.04 and later forbid it by AppArmor: add a profile for bwrap with `userns,`, or set \
                 `kernel.apparmor_restrict_unprivileged_userns=0` with sysctl"
            }
            () if known.contains(&"debian") => {
                "Set `kernel.unprivileged_userns_clone=1` with sysctl. In a container, allow user namespaces in its \
                 seccomp profile"
            }
            () if known.iter().any(|name| ["rhel", "centos", "fedora"].contains(name)) => {
                "Set `user.max_user_namespaces` to at least 1000 with sysctl. In a container, allow user namespaces in \
                 its seccomp profile"
            }
            () => "Allow user namespaces: in the kernel, in AppArmor, or in the seccomp profile of the container",
        }
        .to_owned();
    }
    if has("max_*_namespaces exceeded") {
        return "Raise `user.max_user_namespaces` with sysctl; in a sandbox no other one can be made".to_owned();
    }
    if has("Unknown option") {
        return "Update bubblewrap: version 0.8 or later is needed".to_owned();
    }
    if has("Can't find source path") || has("Can't create file at") {
        return "A path of the sandbox is gone: try again, and look at `sandbox` in its agent.md"
            .to_owned();
    }
    "Run `adjutant doctor`, and see docs/how-to/sandbox.md".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    const NO_NAMESPACE: &str = "bwrap: No permissions to create new namespace, likely because the kernel does not allow \
        non-privileged user namespaces. See <https://deb.li/bubblewrap> or <file:///usr/share/doc/bubblewrap/README.Debian.gz>";

    #[test_case(NO_NAMESPACE, "ID=ubuntu\nID_LIKE=debian" => "Ubuntu 24.04"; "AppArmor of Ubuntu")]
    #[test_case(NO_NAMESPACE, "ID=debian" => "Set `kernel."; "switch of Debian")]
    #[test_case(NO_NAMESPACE, "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"" => "Set `user.ma"; "limit of Red Hat")]
    #[test_case(NO_NAMESPACE, "ID=void" => "Allow user n"; "unknown system")]
    #[test_case("bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)", "" => "Raise `user."; "exhausted")]
    #[test_case("bwrap: Unknown option --add-seccomp-fd", "" => "Update bubbl"; "old version")]
    #[test_case("bwrap: Can't find source path /x: No such file or directory", "" => "A path of th"; "missing source")]
    fn a_refusal_comes_with_advice(reason: &str, os_release: &str) -> String {
        advice(reason, os_release).chars().take(12).collect()
    }

    #[test_case("ID=ubuntu" => "Install it with `apt-get install bubblewrap`, or name it in ADJUTANT_BWRAP")]
    #[test_case("ID=fedora" => "Install it with `dnf install bubblewrap`, or name it in ADJUTANT_BWRAP")]
    #[test_case("" => "Install the package `bubblewrap`, or name its program in ADJUTANT_BWRAP")]
    fn missing_bubblewrap_is_installed_by_the_package_manager(os_release: &str) -> String {
        install_advice(os_release)
    }

    #[test]
    fn a_missing_bubblewrap_is_refused_and_never_replaced() {
        let refusal = find_bwrap(Some(Path::new("/nowhere/bwrap")), None).unwrap_err();
        assert_eq!(refusal.reason, "`/nowhere/bwrap` (from ADJUTANT_BWRAP) is no program");
        let refusal = find_bwrap(None, Some(OsStr::new("/nowhere"))).unwrap_err();
        assert_eq!(refusal.reason, "`bwrap` is not on the PATH");
    }
}
