//! Trees of real processes: started by a script, found by their run marker, and verified to be gone.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::wait::wait_until;
use adjutant::process::{ProcessSpec, SymlinkPolicy, set_supervisor_program};
use adjutant::util::RunId;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A process tree that is hard to stop, and its minimal number of processes.
pub struct ProcessTreeCase {
    pub name: &'static str,
    pub script: &'static str,
    pub min_processes: usize,
}

/// Every process tree that stopping a run must cope with.
pub const PROCESS_TREE_CASES: &[ProcessTreeCase] = &[
    ProcessTreeCase {
        name: "ignores SIGTERM",
        script: "trap '' TERM HUP INT; touch ready; while :; do sleep 1000; done",
        min_processes: 2,
    },
    ProcessTreeCase {
        name: "grandchild in its own session",
        script: "setsid sh -c 'trap \"\" TERM HUP; sleep 1000; :' & touch ready; sleep 1000; :",
        min_processes: 4,
    },
    ProcessTreeCase {
        name: "double fork",
        script: "(setsid sh -c 'sleep 1000 & sleep 1000 & exit' &); touch ready; sleep 1000; :",
        min_processes: 4,
    },
    ProcessTreeCase {
        name: "200 children",
        script: "i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); done; touch ready; wait",
        min_processes: 201,
    },
    ProcessTreeCase {
        name: "shell with a background job",
        script: "sleep 1000 & touch ready; sleep 1000; :",
        min_processes: 3,
    },
    ProcessTreeCase {
        name: "forks for ever",
        script: "touch ready; while :; do sleep 1000 & sleep 0.05; done",
        min_processes: 10,
    },
    ProcessTreeCase {
        name: "stops itself",
        script: "sleep 1000 & touch ready; kill -STOP $$; sleep 1000",
        min_processes: 2,
    },
    ProcessTreeCase {
        name: "a child stopped in its own session",
        script: "setsid sh -c 'kill -STOP $$; sleep 1000' & touch ready; sleep 1000; :",
        min_processes: 3,
    },
];

/// One process, identified by pid and start time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeProcess {
    pub pid: u32,
    started: String,
}

impl TreeProcess {
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let started = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.to_owned();
        Some(Self { pid, started })
    }

    /// Returns true if the process exists, also as a zombie.
    pub fn exists(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }
}

/// A [`ProcessSpec`] that runs a shell script in `folder`.
pub fn process_spec(folder: &Path, script: &str) -> ProcessSpec {
    set_supervisor_program(env!("CARGO_BIN_EXE_adjutant"));
    let path: OsString = std::env::var_os("PATH").unwrap_or_default();
    ProcessSpec {
        label: "test".to_owned(),
        run: RunId::new(),
        program: "sh".into(),
        arguments: vec!["-c".into(), script.into()],
        environment: vec![("PATH".into(), path)],
        working_dir: folder.to_owned(),
        symlinks: SymlinkPolicy::Follow,
    }
}

/// Waits until the whole process tree is running.
pub fn wait_for_tree(folder: &Path, run: &str, members: usize) -> Vec<TreeProcess> {
    wait_until("the sign that all is set up", || folder.join("ready").exists().then_some(()));
    wait_until(&format!("{members} processes of {run}"), || {
        let found = processes_of_run(run);
        (found.len() >= members).then_some(found)
    })
}

/// All processes with the marker of a run in their environment.
pub fn processes_of_run(run: &str) -> Vec<TreeProcess> {
    // The variable has the id without hyphens, as all versions do.
    let marker = format!("ADJUTANT_RUN={}", run.replace('-', ""));
    let carries = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == marker.as_bytes())
    };
    let pids = fs::read_dir("/proc").unwrap();
    let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(carries).filter_map(TreeProcess::of).collect()
}

/// Asserts that none of these processes exists, not even as a zombie, and that none carries the run's marker.
pub fn assert_gone(what: &str, family: &[TreeProcess], run: &str) {
    let left: Vec<_> = family.iter().filter(|member| member.exists()).collect();
    assert!(left.is_empty(), "{what}: still there: {left:?}");
    assert_eq!(processes_of_run(run), [], "{what}: late children");
}

/// Like [`assert_gone`], but allows 5 s.
pub fn assert_gone_within_5_s(what: &str, family: &[TreeProcess], run: &str) {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(5) {
        if !family.iter().any(TreeProcess::exists) && processes_of_run(run).is_empty() {
            return;
        }
        sleep(Duration::from_millis(20));
    }
    assert_gone(what, family, run);
}

pub fn send_signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
}
