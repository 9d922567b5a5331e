//! A program that is told something, says something, and ends: a hook, within a time and a size.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::launch::{Launch, StartFailed};
use super::process::{Process, ProcessEnd, Urgency};
use super::start::start;

/// What a program said until its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// How it ended.
    pub end: BriefEnd,
    /// Its stdout; the beginning of it where that was much.
    pub stdout: String,
    /// The end of its stderr.
    pub stderr: String,
}

/// How a program ended that had a time to do so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BriefEnd {
    /// By itself.
    Ended(ProcessEnd),
    /// The time was over; it and all it started were killed.
    TimedOut,
}

/// Starts a program, gives it `input`, and waits for its end, at most `limit`. Nothing of it is left afterwards.
pub async fn run_briefly(
    launch: Launch,
    input: Vec<u8>,
    limit: Duration,
    most_bytes: u64,
) -> Result<Said, StartFailed> {
    let mut process = start(launch).await?;
    let spoken = timeout(limit, speak(&mut process, input, most_bytes)).await;
    let (end, stdout) = if let Ok((end, stdout)) = spoken {
        (BriefEnd::Ended(end), stdout)
    } else {
        process.end(Urgency::Now).await;
        (BriefEnd::TimedOut, Vec::new())
    };
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    Ok(Said { end, stdout, stderr: process.stderr_tail() })
}

/// A program that reads nothing, or writes before it reads, must not be waited for: both go on at once.
async fn speak(process: &mut Process, input: Vec<u8>, most_bytes: u64) -> (ProcessEnd, Vec<u8>) {
    let (stdin, stdout) = (process.stdin.take(), process.stdout.take());
    let tell = async {
        if let Some(mut stdin) = stdin {
            // One that does not want to hear it closes its end, which is its right.
            let _ = stdin.write_all(&input).await;
            let _ = stdin.shutdown().await;
        }
    };
    let hear = async {
        let mut bytes = Vec::new();
        if let Some(mut stdout) = stdout {
            let _ = (&mut stdout).take(most_bytes).read_to_end(&mut bytes).await;
            // The rest is read and thrown away: a full pipe would hold the program up.
            let _: io::Result<u64> = tokio::io::copy(&mut stdout, &mut tokio::io::sink()).await;
        }
        bytes
    };
    let whole = async { tokio::join!(tell, hear).1 };
    tokio::pin!(whole);
    tokio::select! {
        bytes = &mut whole => (process.wait().await, bytes),
        end = process.wait() => (end, timeout(super::process::DRAIN, whole).await.unwrap_or_default()),
    }
}
