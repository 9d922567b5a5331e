//! A pseudo-terminal, and somebody who sits at it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};

/// Somebody at a terminal, and the program that runs there.
pub struct Terminal {
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    /// What was shown since it was last cleared.
    pub seen: String,
    child: Child,
}

impl Terminal {
    /// Runs a command whose terminal this is, 80 columns wide.
    pub fn run(mut command: Command) -> Self {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let end = || OwnedFd::try_clone(&pty.slave).unwrap();
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let keyboard = File::from(pty.master);
        let mut screen = keyboard.try_clone().unwrap();
        let (sender, shown) = channel();
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            // The last one at the other end being gone is an error here, and the end.
            while let Ok(read @ 1..) = screen.read(&mut chunk) {
                let _ = sender.send(chunk[..read].to_vec());
            }
        });
        Self { keyboard, screen: shown, seen: String::new(), child }
    }

    pub fn sees(&mut self, text: &str) {
        let deadline = Instant::now() + Duration::from_mins(1);
        while !self.seen.contains(text) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(more) = self.screen.recv_timeout(left) else {
                panic!("{text} is never seen: {}", self.seen)
            };
            self.seen += &String::from_utf8_lossy(&more);
        }
    }

    pub fn types(&mut self, line: &str) {
        writeln!(self.keyboard, "{line}").unwrap();
    }

    pub fn ends(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Everything that is shown until it ends.
    pub fn all(mut self) -> String {
        self.ends();
        while let Ok(more) = self.screen.recv() {
            self.seen += &String::from_utf8_lossy(&more);
        }
        self.seen
    }
}
