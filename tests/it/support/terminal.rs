//! A pseudo-terminal with a scripted user.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};

/// A program that runs on a pseudo-terminal.
pub struct PseudoTerminal {
    keyboard: File,
    chunks: Receiver<Vec<u8>>,
    /// Output since the last clear.
    pub output: String,
    child: Child,
}

impl PseudoTerminal {
    /// Runs a command on an 80-column pseudo-terminal.
    pub fn run(command: Command) -> Self {
        Self::run_with_columns(command, 80)
    }

    /// Runs a command on a pseudo-terminal of this width.
    pub fn run_with_columns(mut command: Command, columns: u16) -> Self {
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let end = || OwnedFd::try_clone(&pty.slave).unwrap();
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let keyboard = File::from(pty.master);
        let mut screen = keyboard.try_clone().unwrap();
        let (sender, shown) = channel();
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            // Linux reports the exit of the last process on the terminal as a read error.
            while let Ok(read @ 1..) = screen.read(&mut chunk) {
                let _ = sender.send(chunk[..read].to_vec());
            }
        });
        Self { keyboard, chunks: shown, output: String::new(), child }
    }

    pub fn wait_for_output(&mut self, text: &str) {
        let deadline = Instant::now() + Duration::from_mins(1);
        while !self.output.contains(text) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(more) = self.chunks.recv_timeout(left) else {
                panic!("{text} is never seen: {}", self.output)
            };
            self.output += &String::from_utf8_lossy(&more);
        }
    }

    pub fn type_line(&mut self, line: &str) {
        writeln!(self.keyboard, "{line}").unwrap();
    }

    pub fn wait_for_exit(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Waits for the exit and returns all output.
    pub fn output_until_exit(mut self) -> String {
        self.wait_for_exit();
        while let Ok(more) = self.chunks.recv() {
            self.output += &String::from_utf8_lossy(&more);
        }
        self.output
    }
}
