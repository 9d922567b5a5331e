//! A process that starts a run as a server does and may be killed: this test program once more.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use adjutant::worker::{RunBoard, RunFolder, adopt_orphans, start};

use super::family::{Member, assembled, launch, wait_until};

/// Its folder: `run`, `keeper` and `data` stand there once it has started.
pub struct StandIn {
    pub process: KilledOnDrop,
    pub folder: PathBuf,
    pub run: String,
    pub keeper: Member,
    pub family: Vec<Member>,
}

impl StandIn {
    /// Starts one, and waits until its family is assembled.
    pub fn start(folder: &Path, script: &str, members: usize) -> Self {
        Self::start_by(folder, script, members, &[])
    }

    /// The same, with a program in front that is to become it.
    pub fn start_by(folder: &Path, script: &str, members: usize, before: &[&str]) -> Self {
        let own = std::env::current_exe().unwrap();
        let mut line = before.iter().map(Into::into).chain([own.into_os_string()]);
        let process = Command::new(line.next().unwrap())
            .args(line)
            .args(["--exact", "processes::stand_in::stands_in_for_a_server", "--ignored"])
            .env("STAND_IN_FOLDER", folder)
            .env("STAND_IN_SCRIPT", script)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(KilledOnDrop)
            .unwrap();
        let told = wait_until("the run", || fs::read_to_string(folder.join("run")).ok());
        let (run, keeper) = told.split_once(' ').unwrap();
        let keeper = Member::of(keeper.parse().unwrap()).unwrap();
        let family = assembled(folder, run, members);
        Self { process, folder: folder.to_owned(), run: run.to_owned(), keeper, family }
    }

    /// Where it keeps its data.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.process.0.kill().unwrap();
        self.process.0.wait().unwrap();
    }
}

/// A test that fails half-way leaves nothing behind either.
pub struct KilledOnDrop(pub Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is the other half of tests that kill it"]
async fn stands_in_for_a_server() {
    let folder = PathBuf::from(std::env::var_os("STAND_IN_FOLDER").unwrap());
    adopt_orphans().unwrap();
    let launch = launch(&folder, &std::env::var("STAND_IN_SCRIPT").unwrap());
    let (run, data) = (launch.run, folder.join("data"));
    let files = RunFolder::create(&data, run).unwrap();
    files.write("prompt", b"secret").unwrap();
    let posting = RunBoard::at(&data).post(run, "stand-in", "main").unwrap();
    let mut process = start(launch).await.unwrap();
    posting.started(&process);
    let keeper = process.keeper().unwrap().pid;
    fs::write(folder.join("run.tmp"), format!("{run} {keeper}")).unwrap();
    fs::rename(folder.join("run.tmp"), folder.join("run")).unwrap();
    process.wait().await;
    fs::write(folder.join("over"), "").unwrap();
    std::future::pending::<()>().await;
}
