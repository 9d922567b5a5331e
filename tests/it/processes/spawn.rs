//! Starting a process: environment, signals, output, and the errors of a failed start.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use adjutant::process::{
    ProcessEnd, ProcessHandle, ProcessSpec, StopMode, SymlinkPolicy, spawn_process,
};
use adjutant::runs::kill_remnants_of;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::process_tree::{process_spec, processes_of_run};
use super::server_process::ServerProcess;
use crate::support::wait::wait_until;

async fn read_stdout(process: &mut ProcessHandle) -> String {
    let mut text = String::new();
    process.stdout.take().unwrap().read_to_string(&mut text).await.unwrap();
    text
}

async fn start_error(launch: ProcessSpec) -> String {
    spawn_process(launch).await.expect_err("it must not start").to_string()
}

#[tokio::test]
async fn input_output_and_exit_code_pass_through() {
    let folder = tempfile::tempdir().unwrap();
    let mut process =
        spawn_process(process_spec(folder.path(), "cat; echo trouble >&2; exit 7")).await.unwrap();
    let mut stdin = process.stdin.take().unwrap();
    stdin.write_all("grüße\n".as_bytes()).await.unwrap();
    drop(stdin);
    assert_eq!(read_stdout(&mut process).await, "grüße\n");
    assert_eq!(process.wait().await, ProcessEnd::Exited(7));
    assert_eq!(process.stderr_tail(), "trouble\n");
}

#[tokio::test]
async fn only_requested_environment_and_descriptors_are_inherited() {
    let folder = tempfile::tempdir().unwrap();
    let mut launch =
        process_spec(folder.path(), "env; echo; ls /proc/self/fd; pwd; ps -o tty= -p $$");
    launch.environment.push(("GREETING".into(), "hello world".into()));
    launch.environment.push(("ADJUTANT_RUN".into(), "forged".into()));
    let run = launch.run;
    let mut process = spawn_process(launch).await.unwrap();
    let text = read_stdout(&mut process).await;
    let (environment, rest) = text.split_once("\n\n").unwrap();
    // `PWD`, `SHLVL` and `_` are set by the shell itself.
    let names: BTreeSet<_> =
        environment.lines().filter_map(|line| line.split('=').next()).collect();
    let expected = ["ADJUTANT_RUN", "GREETING", "PATH"];
    let own = ["PWD", "OLDPWD", "SHLVL", "_"];
    assert_eq!(names.into_iter().filter(|name| !own.contains(name)).collect::<Vec<_>>(), expected);
    assert!(environment.contains(&format!("ADJUTANT_RUN={}", run.simple())), "{environment}");
    // The fourth descriptor is the directory that `ls` reads.
    let lines: Vec<_> = rest.lines().collect();
    let place = folder.path().canonicalize().unwrap();
    assert_eq!(
        lines,
        ["0", "1", "2", "3", place.to_str().unwrap(), "?"],
        "no descriptor, no terminal"
    );
}

/// Prints blocked and ignored signals. `parse_masks` keeps the lower 31 bits: libc uses two of the real-time signals.
const SIGNAL_MASKS_SCRIPT: &str = "grep -E '^Sig(Blk|Ign)' /proc/self/status";

fn parse_masks(text: &str) -> Vec<u64> {
    let masks = text.lines().filter_map(|line| line.split_once('\t'));
    masks.map(|(_, mask)| u64::from_str_radix(mask, 16).unwrap() & 0x7fff_ffff).collect()
}

#[tokio::test]
async fn program_starts_with_default_signal_dispositions() {
    let folder = tempfile::tempdir().unwrap();
    let mut process =
        spawn_process(process_spec(folder.path(), SIGNAL_MASKS_SCRIPT)).await.unwrap();
    let text = read_stdout(&mut process).await;
    assert_eq!(parse_masks(&text), [0, 0], "{text}");
}

/// The server ignores signals, as under `nohup`, in a background job, or below a parent that does not reap.
#[test]
fn signals_ignored_by_the_server_are_not_ignored_by_a_program() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("{SIGNAL_MASKS_SCRIPT} > masks; touch ready; sleep 1000; :");
    let above = "trap '' HUP INT QUIT PIPE ALRM TERM CHLD TSTP USR1; exec \"$@\"";
    let server = ServerProcess::start_below(folder.path(), &script, 2, &["sh", "-c", above, "sh"]);
    let status = fs::read_to_string(format!("/proc/{}/status", server.process.0.id())).unwrap();
    let ignored = status.lines().find(|line| line.starts_with("SigIgn")).unwrap();
    assert_ne!(parse_masks(ignored), [0], "the one above did not ignore anything");
    let text = fs::read_to_string(folder.path().join("masks")).unwrap();
    assert_eq!(parse_masks(&text), [0, 0], "{text}");
}

#[tokio::test]
async fn failed_start_reports_its_cause_and_leaves_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let good = process_spec(folder.path(), "true");
    let run = good.run.to_string();
    let plain = folder.path().join("plain");
    fs::write(&plain, "text").unwrap();
    let script = folder.path().join("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();

    let missing =
        start_error(ProcessSpec { program: "no-such-program".into(), ..good.clone() }).await;
    assert_eq!(missing, "there is no program `no-such-program`: install it, or name another");
    let refused = start_error(ProcessSpec { program: plain.clone(), ..good.clone() }).await;
    let expected = "may not be executed: is it a program, and is it marked executable?";
    assert_eq!(refused, format!("`{}` {expected}", plain.display()));
    let refused = start_error(ProcessSpec { program: script.clone(), ..good.clone() }).await;
    let expected = "needs an interpreter that is not installed: look at its first line";
    assert_eq!(refused, format!("`{}` {expected}", script.display()));
    let nowhere =
        start_error(ProcessSpec { working_dir: "/no/such/folder".into(), ..good.clone() }).await;
    assert_eq!(
        nowhere,
        "the working folder `/no/such/folder` cannot be entered: create it, or set another `cwd`"
    );
    let endless =
        start_error(ProcessSpec { arguments: vec!["x".repeat(40 << 20).into()], ..good }).await;
    assert_eq!(
        endless,
        "arguments and environment of `sh` are longer than the system allows: shorten the \
         prompt or the environment"
    );
    assert_eq!(processes_of_run(&run), []);
}

#[tokio::test]
async fn i3_directory_swapped_for_a_symlink_after_resolution_is_rejected() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let [work, away, elsewhere] = ["work", "away", "elsewhere"].map(|name| place.join(name));
    fs::create_dir_all(work.join("inside")).unwrap();
    fs::create_dir_all(elsewhere.join("inside")).unwrap();
    let resolved = |folder: &Path| {
        let launch = process_spec(folder, "touch started; pwd -P");
        ProcessSpec { symlinks: SymlinkPolicy::Refuse, ..launch }
    };
    let mut process = spawn_process(resolved(&work)).await.unwrap();
    assert_eq!(read_stdout(&mut process).await, format!("{}\n", work.display()));
    // The directory itself and its parent are replaced.
    fs::rename(&work, &away).unwrap();
    symlink(&elsewhere, &work).unwrap();
    for folder in [work.clone(), work.join("inside")] {
        let launch = resolved(&folder);
        let run = launch.run.to_string();
        let refused = start_error(launch).await;
        let expected = format!(
            "the working folder `{}` cannot be entered: create it, or set another `cwd`",
            folder.display()
        );
        assert_eq!(refused, expected);
        assert_eq!(processes_of_run(&run), []);
    }
    let started = [elsewhere.join("started"), elsewhere.join("inside/started")];
    assert!(!started.iter().any(|file| file.exists()), "nothing ran there");
    // `SymlinkPolicy::Follow` allows symlinks, as in the configuration of a server.
    let mut process = spawn_process(process_spec(&work, "pwd -P")).await.unwrap();
    assert_eq!(read_stdout(&mut process).await, format!("{}\n", elsewhere.display()));
}

#[tokio::test]
async fn program_is_looked_up_in_the_path_of_its_own_environment() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("only-here");
    fs::write(&program, "#!/bin/sh\nexit 3\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut launch = process_spec(Path::new("/"), "");
    launch.program = "only-here".into();
    launch.environment = vec![("PATH".into(), folder.path().into())];
    assert_eq!(spawn_process(launch).await.unwrap().wait().await, ProcessEnd::Exited(3));
}

#[tokio::test]
async fn f3_flood_on_stderr_does_not_block_and_keeps_only_the_tail() {
    let folder = tempfile::tempdir().unwrap();
    let script = "head -c 20000000 /dev/zero | tr '\\0' x >&2; echo the end >&2";
    let mut process = spawn_process(process_spec(folder.path(), script)).await.unwrap();
    assert_eq!(process.wait().await, ProcessEnd::Exited(0));
    let tail = process.stderr_tail();
    assert!(
        tail.ends_with("x\nthe end\n") || tail.ends_with("xthe end\n"),
        "the last of it is kept"
    );
    assert!(tail.len() <= 8 << 10);
}

#[tokio::test]
async fn graceful_stop_waits_for_the_exit_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let script = "trap 'sleep 0.05; echo clean > trace; exit 5' TERM; touch ready; while :; do sleep 0.02; done";
    let mut process = spawn_process(process_spec(folder.path(), script)).await.unwrap();
    wait_until("the trap", || folder.path().join("ready").exists().then_some(()));
    let end = process.stop(StopMode::Graceful { grace: Duration::from_secs(15) }).await;
    assert_eq!(end, ProcessEnd::Exited(5), "it had the time to end by itself");
    assert_eq!(fs::read_to_string(folder.path().join("trace")).unwrap(), "clean\n");
}

#[tokio::test]
async fn second_stop_request_skips_the_grace_period() {
    let folder = tempfile::tempdir().unwrap();
    let script = "trap '' TERM; touch ready; while :; do sleep 0.1; done";
    let mut process = spawn_process(process_spec(folder.path(), script)).await.unwrap();
    wait_until("the trap", || folder.path().join("ready").exists().then_some(()));
    let started = Instant::now();
    let polite = process.stop(StopMode::Graceful { grace: Duration::from_hours(1) });
    tokio::time::timeout(Duration::from_millis(50), polite).await.expect_err("it ignores SIGTERM");
    let end = process.stop(StopMode::Graceful { grace: Duration::from_hours(1) }).await;
    assert_eq!(end, ProcessEnd::Signaled(9));
    assert!(started.elapsed() < Duration::from_secs(15));
}

#[tokio::test]
async fn orphans_of_a_run_are_killed_by_marker_and_other_runs_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let one = process_spec(folder.path(), "sleep 300");
    let run = one.run;
    let mut ours = spawn_process(one).await.unwrap();
    let mut other = spawn_process(process_spec(folder.path(), "sleep 300")).await.unwrap();
    kill_remnants_of(run).await;
    assert_eq!(ours.wait().await, ProcessEnd::Signaled(9));
    assert!(Path::new(&format!("/proc/{}", other.pid())).exists(), "another run was hit");
    other.stop(StopMode::Kill).await;
}
