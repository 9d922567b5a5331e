//! The real `claude` in a sandbox.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

use serde_json::Value;
use test_case::test_case;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::{REAL_KEY, SandboxContext};
use crate::support::real_claude::real_claude;

const FLAGS: &str = "-p --input-format stream-json --output-format stream-json --verbose --setting-sources= \
    --strict-mcp-config --tools Bash --allowedTools Bash --permission-mode default";

/// Descendants of a process: those in the sandbox, if it is bwrap.
fn descendants(pid: u32) -> Vec<u32> {
    let threads =
        fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().filter_map(Result::ok);
    let children =
        threads.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    let pids: Vec<u32> = children
        .flat_map(|line| {
            line.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()
        })
        .collect();
    let below = pids.iter().flat_map(|pid| descendants(*pid)).collect::<Vec<_>>();
    pids.into_iter().chain(below).collect()
}

/// Counts the occurrences of two texts in environment, arguments and memory of a process.
fn search(pid: u32, wanted: [&str; 2]) -> [usize; 2] {
    let mut found = [0; 2];
    let mut count = |bytes: &[u8]| {
        for (found, text) in found.iter_mut().zip(wanted) {
            *found += memchr::memmem::find_iter(bytes, text.as_bytes()).count();
        }
    };
    for file in ["environ", "cmdline"] {
        count(&fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default());
    }
    let Ok(memory) = fs::File::open(format!("/proc/{pid}/mem")) else { return found };
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    for line in
        maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|p| p.starts_with("rw")))
    {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
        for (at, length) in present_pages(pid, start, end) {
            let mut buffer = vec![0; length];
            let read = memory.read_at(&mut buffer, at).unwrap_or(0);
            count(&buffer[..read]);
        }
    }
    found
}

/// Ranges of a mapping that are in memory: `claude` reserves up to 135 GB without using it.
fn present_pages(pid: u32, start: u64, end: u64) -> Vec<(u64, usize)> {
    const PAGE: u64 = 4096;
    const STEP: u64 = 1 << 16;
    let pagemap = fs::File::open(format!("/proc/{pid}/pagemap")).unwrap();
    let mut ranges: Vec<(u64, usize)> = Vec::new();
    let mut page = start / PAGE;
    while page < end / PAGE {
        let wanted = STEP.min(end / PAGE - page);
        let mut entries = vec![0; usize::try_from(wanted * 8).unwrap()];
        if pagemap.read_exact_at(&mut entries, page * 8).is_err() {
            break;
        }
        for (entry, number) in entries.chunks(8).zip(page..) {
            // Bit 63: present, bit 62: swapped.
            if entry[7] & 0xc0 != 0 {
                match ranges.last_mut().filter(|(at, length)| at + *length as u64 == number * PAGE)
                {
                    Some((_, length)) => *length += 4096,
                    None => ranges.push((number * PAGE, 4096)),
                }
            }
        }
        page += wanted;
    }
    ranges
}

/// Searches regular files below a folder for the key.
fn files_with_key(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files_with_key(&entry.path(), found);
        } else if kind.is_file() && entry.metadata().unwrap().size() < 64 << 20 {
            let content = fs::read(entry.path()).unwrap_or_default();
            if memchr::memmem::find(&content, REAL_KEY.as_bytes()).is_some() {
                found.push(entry.path());
            }
        }
    }
}

#[test_case("2.1.197")]
#[test_case("2.1.325")]
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_with_a_shell_command_runs_without_the_key(version: &str) {
    let Some(claude) = real_claude(version) else { return };
    let Some(context) = SandboxContext::new(&claude) else { return };
    let flags: Vec<&str> = FLAGS.split_whitespace().collect();
    let mut process = context.spawn(adjutant::plan::CLAUDE_INSIDE, &flags).await;
    let root = context.context.root();
    let command = "export PLANTED=planted-control-string; echo from-inside > made.txt; id -un; sleep 3; echo finished";
    let script = format!(
        "CALL Bash {}\nSAY all done",
        serde_json::json!({"command": command, "description": "test"})
    );
    let prompt =
        serde_json::json!({"type": "user", "message": {"role": "user", "content": script}});
    let mut stdin = process.stdin.take().unwrap();
    stdin.write_all(format!("{prompt}\n").as_bytes()).await.unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut output = String::new();
    let mut searched = false;
    let reading = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            output.push_str(&line);
            output.push('\n');
            let frame: Value = serde_json::from_str(&line).unwrap();
            if frame["type"] == "assistant" && line.contains("tool_use") && !searched {
                searched = true;
                // The command is running: the key is searched for while everything is there.
                while !root.join("made.txt").exists() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                let pids = descendants(process.pid());
                assert!(pids.len() >= 3, "relay, claude and a shell: {pids:?}");
                let mut found = [0; 2];
                for pid in pids {
                    let [key, planted] = search(pid, [REAL_KEY, "planted-control-string"]);
                    found = [found[0] + key, found[1] + planted];
                }
                assert_eq!(found[0], 0, "the key is in no process");
                assert!(found[1] > 0, "the search finds what is there");
            }
            if frame["type"] == "result" {
                return;
            }
        }
        panic!("no result: {output} {}", process.stderr_tail());
    };
    tokio::time::timeout(Duration::from_mins(2), reading).await.expect("a result");
    assert!(searched, "{output}");
    assert!(output.contains("agent\\nfinished") && output.contains("all done"), "{output}");
    drop(stdin);
    process.wait().await;
    assert_eq!(fs::read_to_string(root.join("made.txt")).unwrap(), "from-inside\n");
    let mut found = Vec::new();
    for folder in [&root, context.facts.transcripts.as_ref().unwrap(), &context.facts.sockets] {
        files_with_key(folder, &mut found);
    }
    assert_eq!(found, [""; 0].map(std::path::PathBuf::from));
    let transcripts = context.facts.transcripts.as_ref().unwrap();
    assert_eq!(fs::read_dir(transcripts).unwrap().count(), 1, "the transcript is kept outside");
    let requests = context.model.requests();
    assert!(requests.len() >= 2);
    for request in requests {
        assert_eq!(request.headers["x-api-key"], REAL_KEY);
        assert_eq!(request.headers["x-team"], "secret-team");
        assert!(!request.body.to_string().contains(REAL_KEY));
    }
}
