//! Points at which a crash test kills the process.
//!
//! Every primitive of this folder names the moments between two of its system calls. Outside of unit tests a fault
//! point is an empty function.

/// Kills the process with SIGKILL if a crash test chose this occurrence.
#[cfg(not(test))]
#[inline(always)]
pub(super) fn fault_point(_name: &'static str) {}

#[cfg(test)]
pub(super) use harness::fault_point;

#[cfg(test)]
pub(crate) mod harness {
    use std::collections::hash_map::RandomState;
    use std::fmt::Display;
    use std::hash::BuildHasher;
    use std::io::{self, BufRead, BufReader, Write};
    use std::os::unix::process::ExitStatusExt;
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command, ExitStatus, Stdio};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;
    use std::{env, thread};

    /// Number of the fault point, counted from 1, at which the process kills itself.
    const KILL_AT: &str = "ADJUTANT_TEST_KILL_AT";
    /// Directory in which the killed process works.
    const WORK_DIR: &str = "ADJUTANT_TEST_WORK_DIR";
    /// More fault points than any tested operation passes.
    const MAX_POINTS: u32 = 10_000;
    /// Start of a report on stdout. libtest prints the name of the test on the same line.
    const REPORT: &str = "\u{1}durable ";

    static REACHED: AtomicU32 = AtomicU32::new(0);

    pub(crate) fn fault_point(_name: &'static str) {
        let Ok(chosen) = env::var(KILL_AT) else { return };
        if REACHED.fetch_add(1, Ordering::SeqCst) + 1 == chosen.parse::<u32>().unwrap() {
            nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).unwrap();
        }
    }

    /// Directory of the process that is to be killed; `None` in the test process itself.
    pub(crate) fn child_dir() -> Option<PathBuf> {
        env::var_os(WORK_DIR).map(PathBuf::from)
    }

    /// Runs the test `name` (its full path) in a process of its own for each fault point that it passes, and kills it
    /// there.
    ///
    /// The test calls [`child_dir`] first and does its work in that directory if there is one. `prepare` fills the
    /// directory, `check` reads what the killed process left. Returns the number of points; the last process runs to
    /// its end.
    pub(crate) fn kill_at_every_point(
        name: &str,
        prepare: impl Fn(&Path),
        check: impl Fn(&Path, u32),
    ) -> u32 {
        for point in 1..MAX_POINTS {
            let dir = tempfile::tempdir().unwrap();
            prepare(dir.path());
            let output =
                test_process(name, dir.path()).env(KILL_AT, point.to_string()).output().unwrap();
            let ended = output.status.success();
            if !ended {
                assert_killed(output.status, &String::from_utf8_lossy(&output.stdout));
            }
            check(dir.path(), point);
            if ended {
                return point - 1;
            }
        }
        panic!("the operation passes more than {MAX_POINTS} fault points");
    }

    /// Tells [`kill_at_random`] that an update is durable.
    pub(crate) fn report_durable(update: impl Display) {
        let mut stdout = io::stdout().lock();
        stdout.write_all(format!("{REPORT}{update}\n").as_bytes()).unwrap();
        stdout.flush().unwrap();
    }

    /// Runs the test `name` (its full path) in a process of its own, `kills` times in one directory, and kills each
    /// at a random moment.
    ///
    /// The test calls [`child_dir`] first and, in the child, updates without end, with [`report_durable`] after each
    /// update. `check` gets the directory and all reports so far after every kill.
    pub(crate) fn kill_at_random(name: &str, kills: u32, check: impl Fn(&Path, &[String])) {
        let dir = tempfile::tempdir().unwrap();
        let mut reported = Vec::new();
        for _ in 0..kills {
            let mut child = test_process(name, dir.path()).spawn().unwrap();
            let mut lines =
                BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
            let mut output = String::new();
            let mut next_report = || {
                let line = lines.next()?;
                output += &line;
                Some(line.split_once(REPORT).map(|(_, update)| update.to_owned()))
            };
            // The first reports prove that the child updates; the moment after them is random.
            let mut awaited = 1 + random_below(5);
            while awaited > 0 {
                let report = next_report().expect("the child ended before it was killed");
                awaited -= u64::from(report.is_some());
                reported.extend(report);
            }
            thread::sleep(Duration::from_micros(random_below(5_000)));
            child.kill().unwrap();
            while let Some(report) = next_report() {
                reported.extend(report);
            }
            assert_killed(child.wait().unwrap(), &output);
            check(dir.path(), &reported);
        }
    }

    /// Runs the test `name` in `count` processes at once, all in `dir`, and waits until each has ended successfully.
    pub(crate) fn run_at_once(name: &str, count: u32, dir: &Path) {
        let children: Vec<Child> =
            (0..count).map(|_| test_process(name, dir).spawn().unwrap()).collect();
        for child in children {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
    }

    fn test_process(name: &str, dir: &Path) -> Command {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(WORK_DIR, dir);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    fn assert_killed(status: ExitStatus, output: &str) {
        assert_eq!(status.signal(), Some(9), "the child failed by itself: {output}");
    }

    fn random_below(limit: u64) -> u64 {
        RandomState::new().hash_one(0) % limit
    }

    /// A full disk for tests: a tmpfs, unmounted when dropped.
    pub(crate) struct SmallDisk {
        dir: tempfile::TempDir,
    }

    impl SmallDisk {
        /// Mounts a tmpfs of `kib` KiB. `None` with a message where this user may not mount; a failure if `CI` is set.
        pub(crate) fn mount(kib: u32) -> Option<Self> {
            let dir = tempfile::tempdir().unwrap();
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "tmpfs"]).arg(dir.path());
            let failure = match mount.output() {
                Ok(output) if output.status.success() => return Some(Self { dir }),
                Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
                Err(error) => error.to_string(),
            };
            assert!(env::var_os("CI").is_none(), "no tmpfs can be mounted: {failure}");
            eprintln!("SKIPPED: a full disk is not tested, no tmpfs can be mounted: {failure}");
            None
        }

        pub(crate) fn path(&self) -> &Path {
            self.dir.path()
        }

        /// Fills all free space and returns the file that holds it.
        pub(crate) fn fill(&self) -> PathBuf {
            let path = self.path().join("filler");
            let mut filler = std::fs::File::create(&path).unwrap();
            for size in [4096, 1] {
                while filler.write_all(&vec![0; size]).is_ok() {}
            }
            path
        }
    }

    impl Drop for SmallDisk {
        fn drop(&mut self) {
            let unmounted = Command::new("umount").arg("-l").arg(self.path()).status();
            assert!(thread::panicking() || unmounted.unwrap().success());
        }
    }
}
