//! A process that starts a run like a server and can be killed: this test binary, started again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use adjutant::process::{reap_orphans, spawn_process};
use adjutant::runs::{RunDir, RunRegistry};

use super::process_tree::{TreeProcess, process_spec, wait_for_tree};
use crate::support::wait::wait_until;

/// The server process. Its directory contains `run` and `data` once the run has started.
pub struct ServerProcess {
    pub process: KillOnDrop,
    pub folder: PathBuf,
    pub run: String,
    pub supervisor: TreeProcess,
    pub tree: Vec<TreeProcess>,
}

impl ServerProcess {
    /// Starts the process and waits until the process tree of its run is complete.
    pub fn start(folder: &Path, script: &str, members: usize) -> Self {
        Self::start_below(folder, script, members, &[])
    }

    /// Like [`start`](Self::start); the command `before` runs first and must `exec` the process.
    pub fn start_below(folder: &Path, script: &str, members: usize, before: &[&str]) -> Self {
        let own = std::env::current_exe().unwrap();
        let mut line = before.iter().map(Into::into).chain([own.into_os_string()]);
        let process = Command::new(line.next().unwrap())
            .args(line)
            .args(["--exact", "processes::server_process::stands_in_for_a_server", "--ignored"])
            .env("STAND_IN_FOLDER", folder)
            .env("STAND_IN_SCRIPT", script)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(KillOnDrop)
            .unwrap();
        let told = wait_until("the run", || fs::read_to_string(folder.join("run")).ok());
        let (run, supervisor_pid) = told.split_once(' ').unwrap();
        let supervisor = TreeProcess::of(supervisor_pid.parse().unwrap()).unwrap();
        let tree = wait_for_tree(folder, run, members);
        Self { process, folder: folder.to_owned(), run: run.to_owned(), supervisor, tree }
    }

    pub fn data_dir(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Kills the process with SIGKILL and reaps it.
    pub fn kill(&mut self) {
        self.process.0.kill().unwrap();
        self.process.0.wait().unwrap();
    }
}

/// Kills and reaps the child when dropped, so that a failed test leaves no process.
pub struct KillOnDrop(pub Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is the other half of tests that kill it"]
async fn stands_in_for_a_server() {
    let folder = PathBuf::from(std::env::var_os("STAND_IN_FOLDER").unwrap());
    reap_orphans().unwrap();
    let launch = process_spec(&folder, &std::env::var("STAND_IN_SCRIPT").unwrap());
    let (run, data) = (launch.run, folder.join("data"));
    let files = RunDir::create(&data, run).unwrap();
    files.write("prompt", b"secret").unwrap();
    let registration = RunRegistry::at(&data).register(run, "stand-in", "main").unwrap();
    let mut process = spawn_process(launch).await.unwrap();
    registration.set_process(&process);
    let supervisor_pid = process.supervisor().unwrap().pid;
    fs::write(folder.join("run.tmp"), format!("{run} {supervisor_pid}")).unwrap();
    fs::rename(folder.join("run.tmp"), folder.join("run")).unwrap();
    process.wait().await;
    fs::write(folder.join("over"), "").unwrap();
    std::future::pending::<()>().await;
}
