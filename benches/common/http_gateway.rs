//! A gateway over HTTP that is stopped when dropped.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

/// A process of `adjutant gateway --http`, killed when dropped.
pub struct HttpGateway {
    child: Child,
    /// Kept open: the gateway writes to it.
    _stderr: BufReader<ChildStderr>,
    /// Host and port, such as `127.0.0.1:40000`.
    pub address: String,
    /// A token for `dev`.
    pub token: String,
}

impl HttpGateway {
    /// Starts `program gateway --http` in this project.
    pub fn start(program: &Path, project: &Path) -> Self {
        let adjutant = || {
            let mut command = Command::new(program);
            command.current_dir(project).env("RUST_LOG", "error");
            command
        };
        let made = adjutant().args(["token", "new", "dev"]).output().unwrap();
        let token = String::from_utf8(made.stdout).unwrap().trim().to_owned();
        let mut child = adjutant()
            .args(["gateway", "--http", "127.0.0.1:0", "--requests-per-second", "0"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut said = String::new();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        stderr.read_line(&mut said).unwrap();
        let place = said.split("://").nth(1).and_then(|rest| rest.split('/').next());
        let address = place.expect("an address").to_owned();
        Self { child, _stderr: stderr, address, token }
    }
}

impl Drop for HttpGateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
