//! A family of real processes: started with a script, found by its marker, and proved to be gone.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use adjutant::base::RunId;
use adjutant::worker::{Launch, Links, use_keeper_program};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Generous: the machine that runs the tests may be busy.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What a family does that makes it hard to end, and how many processes it has at least.
pub struct Misbehaviour {
    pub name: &'static str,
    pub script: &'static str,
    pub members: usize,
}

/// Every misbehaviour that ending a run must cope with.
pub const MISBEHAVIOURS: &[Misbehaviour] = &[
    Misbehaviour {
        name: "ignores SIGTERM",
        script: "trap '' TERM HUP INT; touch ready; while :; do sleep 1000; done",
        members: 2,
    },
    Misbehaviour {
        name: "grandchild in its own session",
        script: "setsid sh -c 'trap \"\" TERM HUP; sleep 1000; :' & touch ready; sleep 1000; :",
        members: 4,
    },
    Misbehaviour {
        name: "double fork",
        script: "(setsid sh -c 'sleep 1000 & sleep 1000 & exit' &); touch ready; sleep 1000; :",
        members: 4,
    },
    Misbehaviour {
        name: "200 children",
        script: "i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); done; touch ready; wait",
        members: 201,
    },
    Misbehaviour {
        name: "shell with a background job",
        script: "sleep 1000 & touch ready; sleep 1000; :",
        members: 3,
    },
    Misbehaviour {
        name: "forks for ever",
        script: "touch ready; while :; do sleep 1000 & sleep 0.05; done",
        members: 10,
    },
    Misbehaviour {
        name: "stops itself",
        script: "sleep 1000 & touch ready; kill -STOP $$; sleep 1000",
        members: 2,
    },
    Misbehaviour {
        name: "a child stopped in its own session",
        script: "setsid sh -c 'kill -STOP $$; sleep 1000' & touch ready; sleep 1000; :",
        members: 3,
    },
];

/// One process, proved by pid and start time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub pid: u32,
    started: String,
}

impl Member {
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let started = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.to_owned();
        Some(Self { pid, started })
    }

    /// Whether it is there in any form: a zombie counts.
    pub fn is_there(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }
}

/// How to start a family in a folder.
pub fn launch(folder: &Path, script: &str) -> Launch {
    use_keeper_program(env!("CARGO_BIN_EXE_adjutant"));
    let path: OsString = std::env::var_os("PATH").unwrap_or_default();
    Launch {
        label: "test".to_owned(),
        run: RunId::new(),
        program: "sh".into(),
        arguments: vec!["-c".into(), script.into()],
        environment: vec![("PATH".into(), path)],
        folder: folder.to_owned(),
        links: Links::Follow,
    }
}

/// Waits until the whole family is there.
pub fn assembled(folder: &Path, run: &str, members: usize) -> Vec<Member> {
    wait_until("the sign that all is set up", || folder.join("ready").exists().then_some(()));
    wait_until(&format!("{members} processes of {run}"), || {
        let found = marked(run);
        (found.len() >= members).then_some(found)
    })
}

/// All processes with the marker of a run.
pub fn marked(run: &str) -> Vec<Member> {
    let marker = format!("ADJUTANT_RUN={run}");
    let carries = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == marker.as_bytes())
    };
    let pids = fs::read_dir("/proc").unwrap();
    let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(carries).filter_map(Member::of).collect()
}

/// Checks that none of these is there, not even as a zombie, and that nobody has the run's marker.
pub fn assert_gone_at_once(what: &str, family: &[Member], run: &str) {
    let left: Vec<_> = family.iter().filter(|member| member.is_there()).collect();
    assert!(left.is_empty(), "{what}: still there: {left:?}");
    assert_eq!(marked(run), [], "{what}: late children");
}

/// The same, with the five seconds that hold where nobody is left to wait for.
pub fn assert_gone_soon(what: &str, family: &[Member], run: &str) {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(5) {
        if !family.iter().any(Member::is_there) && marked(run).is_empty() {
            return;
        }
        sleep(Duration::from_millis(20));
    }
    assert_gone_at_once(what, family, run);
}

/// Sends a signal as a person would.
pub fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
}

/// Asks until there is an answer.
pub fn wait_until<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(started.elapsed() < PATIENCE, "waited in vain for {what}");
        sleep(Duration::from_millis(20));
    }
}
