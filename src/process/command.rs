//! Runs a short-lived program such as a hook, with a deadline and an output limit.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::handle::{ProcessEnd, ProcessHandle, StopMode};
use super::spawn::spawn_process;
use super::spec::{ProcessSpec, SpawnError};

/// Exit status and output of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandOutput {
    pub end: CommandEnd,
    /// Standard output up to the limit, lossily decoded.
    pub stdout: String,
    /// The last 8 KiB of standard error.
    pub stderr: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandEnd {
    /// The program ended before the deadline.
    Exited(ProcessEnd),
    /// The deadline passed; the program and its descendants were killed. Its standard output is lost.
    TimedOut,
}

/// Starts a program, writes `input` to its stdin and waits for its end, at most `limit`.
///
/// All descendants are gone when this returns. Dropping the future kills them, too.
pub(crate) async fn run_command(
    spec: ProcessSpec,
    input: Vec<u8>,
    limit: Duration,
    max_output_bytes: u64,
) -> Result<CommandOutput, SpawnError> {
    let mut process = spawn_process(spec).await?;
    let exchanged = timeout(limit, exchange(&mut process, input, max_output_bytes)).await;
    let (end, stdout) = if let Ok((end, stdout)) = exchanged {
        (CommandEnd::Exited(end), stdout)
    } else {
        process.stop(StopMode::Kill).await;
        (CommandEnd::TimedOut, Vec::new())
    };
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    Ok(CommandOutput { end, stdout, stderr: process.stderr_tail() })
}

/// Writes stdin and reads stdout concurrently: a program may write before it reads, or never read.
async fn exchange(
    process: &mut ProcessHandle,
    input: Vec<u8>,
    max_output_bytes: u64,
) -> (ProcessEnd, Vec<u8>) {
    let (stdin, stdout) = (process.stdin.take(), process.stdout.take());
    let write_input = async {
        if let Some(mut stdin) = stdin {
            // A program may close its stdin without reading it.
            let _ = stdin.write_all(&input).await;
            let _ = stdin.shutdown().await;
        }
    };
    let read_output = async {
        let mut bytes = Vec::new();
        if let Some(mut stdout) = stdout {
            let _ = (&mut stdout).take(max_output_bytes).read_to_end(&mut bytes).await;
            // Discard the rest: a full pipe would block the program.
            let _: io::Result<u64> = tokio::io::copy(&mut stdout, &mut tokio::io::sink()).await;
        }
        bytes
    };
    let io = async { tokio::join!(write_input, read_output).1 };
    tokio::pin!(io);
    tokio::select! {
        bytes = &mut io => (process.wait().await, bytes),
        end = process.wait() => (end, timeout(super::handle::DRAIN_TIMEOUT, io).await.unwrap_or_default()),
    }
}
