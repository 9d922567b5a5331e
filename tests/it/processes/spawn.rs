//! What a started process gets, what it says, and why it could not be started.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use adjutant::worker::{Launch, Links, Process, ProcessEnd, Urgency, end_leftovers_of, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::family::{launch, marked, wait_until};
use super::stand_in::StandIn;

async fn output(process: &mut Process) -> String {
    let mut text = String::new();
    process.stdout.take().unwrap().read_to_string(&mut text).await.unwrap();
    text
}

async fn refusal(launch: Launch) -> String {
    start(launch).await.expect_err("it must not start").to_string()
}

#[tokio::test]
async fn input_output_and_exit_code_pass_through() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = start(launch(folder.path(), "cat; echo trouble >&2; exit 7")).await.unwrap();
    let mut stdin = process.stdin.take().unwrap();
    stdin.write_all("grüße\n".as_bytes()).await.unwrap();
    drop(stdin);
    assert_eq!(output(&mut process).await, "grüße\n");
    assert_eq!(process.wait().await, ProcessEnd::Exited(7));
    assert_eq!(process.stderr_tail(), "trouble\n");
}

#[tokio::test]
async fn nothing_is_inherited_but_what_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut launch = launch(folder.path(), "env; echo; ls /proc/self/fd; pwd; ps -o tty= -p $$");
    launch.environment.push(("GREETING".into(), "hello world".into()));
    launch.environment.push(("ADJUTANT_RUN".into(), "forged".into()));
    let run = launch.run;
    let mut process = start(launch).await.unwrap();
    let text = output(&mut process).await;
    let (environment, rest) = text.split_once("\n\n").unwrap();
    // `PWD`, `SHLVL` and `_` are the shell's own.
    let names: BTreeSet<_> =
        environment.lines().filter_map(|line| line.split('=').next()).collect();
    let expected = ["ADJUTANT_RUN", "GREETING", "PATH"];
    let own = ["PWD", "OLDPWD", "SHLVL", "_"];
    assert_eq!(names.into_iter().filter(|name| !own.contains(name)).collect::<Vec<_>>(), expected);
    assert!(environment.contains(&format!("ADJUTANT_RUN={run}")), "{environment}");
    // The fourth descriptor is `ls` reading the folder.
    let lines: Vec<_> = rest.lines().collect();
    let place = folder.path().canonicalize().unwrap();
    assert_eq!(
        lines,
        ["0", "1", "2", "3", place.to_str().unwrap(), "?"],
        "no descriptor, no terminal"
    );
}

/// What is blocked and what is ignored. The ordinary signals are the lower 31 bits; the C library plays with two of the others.
const SIGNALS: &str = "grep -E '^Sig(Blk|Ign)' /proc/self/status";

fn masks(text: &str) -> Vec<u64> {
    let masks = text.lines().filter_map(|line| line.split_once('\t'));
    masks.map(|(_, mask)| u64::from_str_radix(mask, 16).unwrap() & 0x7fff_ffff).collect()
}

#[tokio::test]
async fn a_program_has_the_signals_of_a_fresh_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = start(launch(folder.path(), SIGNALS)).await.unwrap();
    let text = output(&mut process).await;
    assert_eq!(masks(&text), [0, 0], "{text}");
}

/// As in the background of a script, under `nohup`, or below somebody who collects no children.
#[test]
fn what_was_ignored_above_us_is_not_ignored_by_a_program() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("{SIGNALS} > masks; touch ready; sleep 1000; :");
    let above = "trap '' HUP INT QUIT PIPE ALRM TERM CHLD TSTP USR1; exec \"$@\"";
    let server = StandIn::start_by(folder.path(), &script, 2, &["sh", "-c", above, "sh"]);
    let status = fs::read_to_string(format!("/proc/{}/status", server.process.0.id())).unwrap();
    let ignored = status.lines().find(|line| line.starts_with("SigIgn")).unwrap();
    assert_ne!(masks(ignored), [0], "the one above did not ignore anything");
    let text = fs::read_to_string(folder.path().join("masks")).unwrap();
    assert_eq!(masks(&text), [0, 0], "{text}");
}

#[tokio::test]
async fn a_refusal_says_what_is_wrong_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let good = launch(folder.path(), "true");
    let run = good.run.to_string();
    let plain = folder.path().join("plain");
    fs::write(&plain, "text").unwrap();
    let script = folder.path().join("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();

    let missing = refusal(Launch { program: "no-such-program".into(), ..good.clone() }).await;
    assert_eq!(missing, "there is no program `no-such-program`: install it, or name another");
    let refused = refusal(Launch { program: plain, ..good.clone() }).await;
    assert!(refused.contains("may not be executed"), "{refused}");
    let refused = refusal(Launch { program: script, ..good.clone() }).await;
    assert!(refused.contains("needs an interpreter"), "{refused}");
    let nowhere = refusal(Launch { folder: "/no/such/folder".into(), ..good.clone() }).await;
    assert_eq!(
        nowhere,
        "the working folder `/no/such/folder` cannot be entered: create it, or set another `cwd`"
    );
    let endless = refusal(Launch { arguments: vec!["x".repeat(40 << 20).into()], ..good }).await;
    assert!(endless.contains("longer than the system allows"), "{endless}");
    assert_eq!(marked(&run), []);
}

#[tokio::test]
async fn i3_a_folder_that_is_swapped_after_it_was_resolved_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let [work, away, elsewhere] = ["work", "away", "elsewhere"].map(|name| place.join(name));
    fs::create_dir_all(work.join("inside")).unwrap();
    fs::create_dir_all(elsewhere.join("inside")).unwrap();
    let resolved = |folder: &Path| {
        let launch = launch(folder, "touch started; pwd -P");
        Launch { links: Links::Refuse, ..launch }
    };
    let mut process = start(resolved(&work)).await.unwrap();
    assert_eq!(output(&mut process).await, format!("{}\n", work.display()));
    // The folder itself, and one above it.
    fs::rename(&work, &away).unwrap();
    symlink(&elsewhere, &work).unwrap();
    for folder in [work.clone(), work.join("inside")] {
        let launch = resolved(&folder);
        let run = launch.run.to_string();
        let refused = refusal(launch).await;
        assert!(refused.contains("cannot be entered"), "{refused}");
        assert_eq!(marked(&run), []);
    }
    let started = [elsewhere.join("started"), elsewhere.join("inside/started")];
    assert!(!started.iter().any(|file| file.exists()), "nothing ran there");
    // Who writes a link on purpose, as for a server, gets there.
    let mut process = start(launch(&work, "pwd -P")).await.unwrap();
    assert_eq!(output(&mut process).await, format!("{}\n", elsewhere.display()));
}

#[tokio::test]
async fn a_program_is_found_in_the_path_it_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("only-here");
    fs::write(&program, "#!/bin/sh\nexit 3\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut launch = launch(Path::new("/"), "");
    launch.program = "only-here".into();
    launch.environment = vec![("PATH".into(), folder.path().into())];
    assert_eq!(start(launch).await.unwrap().wait().await, ProcessEnd::Exited(3));
}

#[tokio::test]
async fn f3_a_flood_on_stderr_neither_blocks_nor_grows() {
    let folder = tempfile::tempdir().unwrap();
    let script = "head -c 20000000 /dev/zero | tr '\\0' x >&2; echo the end >&2";
    let mut process = start(launch(folder.path(), script)).await.unwrap();
    assert_eq!(process.wait().await, ProcessEnd::Exited(0));
    let tail = process.stderr_tail();
    assert!(
        tail.ends_with("x\nthe end\n") || tail.ends_with("xthe end\n"),
        "the last of it is kept"
    );
    assert!(tail.len() <= 8 << 10);
}

#[tokio::test]
async fn an_end_is_told_from_the_end_of_its_own_children() {
    let folder = tempfile::tempdir().unwrap();
    let script = "trap 'sleep 0.05; echo clean > trace; exit 5' TERM; touch ready; while :; do sleep 0.02; done";
    let mut process = start(launch(folder.path(), script)).await.unwrap();
    wait_until("the trap", || folder.path().join("ready").exists().then_some(()));
    let end = process.end(Urgency::Polite { grace: Duration::from_secs(15) }).await;
    assert_eq!(end, ProcessEnd::Exited(5), "it had the time to end by itself");
    assert_eq!(fs::read_to_string(folder.path().join("trace")).unwrap(), "clean\n");
}

#[tokio::test]
async fn a_second_request_skips_the_grace() {
    let folder = tempfile::tempdir().unwrap();
    let script = "trap '' TERM; touch ready; while :; do sleep 0.1; done";
    let mut process = start(launch(folder.path(), script)).await.unwrap();
    wait_until("the trap", || folder.path().join("ready").exists().then_some(()));
    let started = Instant::now();
    let polite = process.end(Urgency::Polite { grace: Duration::from_hours(1) });
    tokio::time::timeout(Duration::from_millis(50), polite).await.expect_err("it ignores SIGTERM");
    let end = process.end(Urgency::Polite { grace: Duration::from_hours(1) }).await;
    assert_eq!(end, ProcessEnd::Signaled(9));
    assert!(started.elapsed() < Duration::from_secs(15));
}

#[tokio::test]
async fn what_is_left_of_a_run_is_ended_by_its_mark_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let one = launch(folder.path(), "sleep 300");
    let run = one.run;
    let mut ours = start(one).await.unwrap();
    let mut other = start(launch(folder.path(), "sleep 300")).await.unwrap();
    end_leftovers_of(run).await;
    assert_eq!(ours.wait().await, ProcessEnd::Signaled(9));
    assert!(Path::new(&format!("/proc/{}", other.pid())).exists(), "another run was hit");
    other.end(Urgency::Now).await;
}
