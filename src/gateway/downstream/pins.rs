//! Pins of tool definitions: detects that a server changes a tool after it was first seen.
//!
//! `data/tool-pins.json` holds the accepted digest of every tool and, if it differs, the current one. `adjutant trust
//! SERVER` accepts the current digests.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::super::error::GatewayError;
use super::tools::ToolList;
use crate::store::{Document, FormatNumber, Stored};
use crate::util::{Mutex, Timestamp, now, run_blocking};

/// Pins of the tools of a project.
pub(crate) struct ToolPins {
    document: Document<PinsFile>,
    comparing: tokio::sync::Mutex<()>,
    changed: Mutex<BTreeMap<String, Vec<String>>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct PinsFile {
    format: FormatNumber<1>,
    servers: BTreeMap<String, BTreeMap<String, ToolPin>>,
    /// Warnings from the last read of a server's tool list.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    odd: BTreeMap<String, Vec<String>>,
}

impl Stored for PinsFile {
    const FORMAT: u32 = 1;
    const MAX_BYTES: u64 = 64 << 20;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ToolPin {
    accepted: String,
    since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    now: Option<String>,
}

impl PinsFile {
    /// Enters a tool list and returns the names of the changed tools.
    fn enter(&mut self, server: &str, list: &ToolList) -> Vec<String> {
        let mut pins = self.servers.remove(server).unwrap_or_default();
        let mut changed = Vec::new();
        for tool in &list.tools {
            let pin = pins.entry(tool.name.clone()).or_insert_with(|| ToolPin {
                accepted: tool.digest.clone(),
                since: now(),
                now: None,
            });
            if pin.accepted == tool.legacy_digest {
                pin.accepted.clone_from(&tool.digest);
            }
            let differs = pin.accepted != tool.digest;
            pin.now = differs.then(|| tool.digest.clone());
            if differs {
                changed.push(tool.name.clone());
            }
        }
        if !pins.is_empty() {
            self.servers.insert(server.to_owned(), pins);
        }
        match list.warnings.as_slice() {
            [] => drop(self.odd.remove(server)),
            odd => drop(self.odd.insert(server.to_owned(), odd.to_vec())),
        }
        changed
    }
}

/// Findings about tools for the user.
#[derive(Clone, Debug)]
pub(crate) struct PinFindings {
    /// Changed tools, by server.
    pub changed: BTreeMap<String, Vec<String>>,
    /// Warnings, by server.
    pub warnings: BTreeMap<String, Vec<String>>,
}

impl ToolPins {
    /// Opens the pins in the `data/` directory of a project.
    pub(crate) fn new(data: &Path) -> Self {
        let document = Document::new(data.join("tool-pins.json"));
        Self { document, comparing: tokio::sync::Mutex::default(), changed: Mutex::default() }
    }

    /// Waits until no other call of this process compares: many first calls at once would each write the file.
    pub(crate) async fn wait_for_turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.comparing.lock().await
    }

    /// Compares a tool list with the pins, adds new tools, and returns the names of the changed ones.
    ///
    /// If the file has to be written, waits up to 5 s for its lock on a blocking thread.
    pub(crate) async fn compare(
        self: &Arc<Self>,
        server: &str,
        list: &Arc<ToolList>,
    ) -> Result<Vec<String>, GatewayError> {
        let known = self.read()?.unwrap_or_default();
        let mut entered = PinsFile::clone(&known);
        let mut changed = entered.enter(server, list);
        if entered != *known {
            let (pins, name, list) = (Arc::clone(self), server.to_owned(), Arc::clone(list));
            // Entered again: a person may have trusted the server since the file was read.
            let updated = run_blocking(move || pins.update(|file| file.enter(&name, &list))).await;
            changed =
                updated.unwrap_or_else(|| Err(self.error("the update was aborted".into())))?;
        }
        self.changed.lock().insert(server.to_owned(), changed.clone());
        Ok(changed)
    }

    /// Returns the changed tools by server, as of the last comparison in this process.
    pub(crate) fn changed(&self) -> BTreeMap<String, Vec<String>> {
        let mut changed = self.changed.lock().clone();
        changed.retain(|_, tools| !tools.is_empty());
        changed
    }

    /// Accepts the current definitions of a server; returns the names of the tools that had changed. Blocks.
    pub(crate) fn accept_current(&self, server: &str) -> Result<Vec<String>, GatewayError> {
        // Without a pending change nothing is written.
        if !self.findings()?.changed.contains_key(server) {
            return Ok(Vec::new());
        }
        self.update(|file| {
            let mut accepted = Vec::new();
            for (tool, pin) in file.servers.entry(server.to_owned()).or_default() {
                if let Some(digest) = pin.now.take() {
                    *pin = ToolPin { accepted: digest, since: now(), now: None };
                    accepted.push(tool.clone());
                }
            }
            accepted
        })
    }

    /// Returns the changed tools that are not accepted yet, and the warnings, both as stored in the file.
    pub(crate) fn findings(&self) -> Result<PinFindings, GatewayError> {
        let file = self.read()?.unwrap_or_default();
        let unaccepted = |pins: &BTreeMap<String, ToolPin>| -> Vec<String> {
            let changed = pins.iter().filter(|(_, pin)| pin.now.is_some());
            changed.map(|(tool, _)| tool.clone()).collect()
        };
        let changed = file.servers.iter().map(|(server, pins)| (server.clone(), unaccepted(pins)));
        let changed = changed.filter(|(_, tools)| !tools.is_empty()).collect();
        Ok(PinFindings { changed, warnings: file.odd.clone() })
    }

    /// Returns the servers that have pins.
    pub(crate) fn servers(&self) -> Result<Vec<String>, GatewayError> {
        Ok(self.read()?.unwrap_or_default().servers.keys().cloned().collect())
    }

    fn read(&self) -> Result<Option<Arc<PinsFile>>, GatewayError> {
        self.document.read().map_err(|error| self.error(error.to_string()))
    }

    fn update<R>(&self, change: impl FnOnce(&mut PinsFile) -> R) -> Result<R, GatewayError> {
        self.document.update(change).map_err(|error| self.error(error.to_string()))
    }

    fn error(&self, reason: String) -> GatewayError {
        GatewayError::Pins { path: self.document.path().to_path_buf(), reason }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::tools::Tool;
    use super::*;
    use serde_json::Value;

    /// Compares like a gateway, with a runtime of its own.
    fn compare(pins: &Arc<ToolPins>, list: ToolList) -> Result<Vec<String>, GatewayError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(pins.compare("s", &Arc::new(list)))
    }

    fn list_with_digest(digest: &str) -> ToolList {
        let tool = Tool {
            name: "t".to_owned(),
            definition: Value::Null,
            digest: format!("whole:{digest}"),
            legacy_digest: digest.to_owned(),
        };
        ToolList { tools: vec![tool], ..ToolList::default() }
    }

    #[test]
    fn a_changed_tool_is_reported_until_it_is_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let pins = Arc::new(ToolPins::new(&dir.path().join("data")));
        assert!(compare(&pins, list_with_digest("one")).unwrap().is_empty());
        assert_eq!(compare(&pins, list_with_digest("two")).unwrap(), ["t"]);
        assert_eq!(ToolPins::new(&dir.path().join("data")).accept_current("s").unwrap(), ["t"]);
        assert!(compare(&pins, list_with_digest("two")).unwrap().is_empty());
        assert_eq!(
            compare(&pins, list_with_digest("one")).unwrap(),
            ["t"],
            "going back is a change too"
        );
    }

    #[test]
    fn a_pin_in_the_old_format_is_converted_if_the_tool_is_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tool-pins.json");
        let pin = r#"{"accepted": "one", "since": "2026-01-01T00:00:00Z"}"#;
        std::fs::write(&file, format!(r#"{{"format":1,"servers":{{"s":{{"t":{pin}}}}}}}"#))
            .unwrap();
        let pins = Arc::new(ToolPins::new(dir.path()));
        assert_eq!(compare(&pins, list_with_digest("two")).unwrap(), ["t"]);
        assert!(compare(&pins, list_with_digest("one")).unwrap().is_empty());
        assert!(std::fs::read_to_string(&file).unwrap().contains("whole:one"));
    }

    #[test]
    fn trust_is_not_lost_while_tool_lists_are_compared() {
        for _ in 0..20 {
            let dir = tempfile::tempdir().unwrap();
            let pins = Arc::new(ToolPins::new(dir.path()));
            compare(&pins, list_with_digest("one")).unwrap();
            compare(&pins, list_with_digest("two")).unwrap();
            let is_trusted = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let comparing = scope.spawn(|| {
                    let mut lists = ["three", "two"].into_iter().cycle();
                    while !is_trusted.load(Ordering::SeqCst) {
                        compare(&pins, list_with_digest(lists.next().unwrap())).unwrap();
                    }
                });
                let trusted = pins.accept_current("s");
                is_trusted.store(true, Ordering::SeqCst);
                comparing.join().unwrap();
                assert_eq!(trusted.unwrap(), ["t"]);
            });
            let file = pins.read().unwrap().unwrap();
            assert_ne!(
                file.servers["s"]["t"].accepted, "whole:one",
                "a list that was read before has undone the trust"
            );
        }
    }

    #[test]
    fn a_truncated_file_is_reported_and_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let pins = Arc::new(ToolPins::new(dir.path()));
        std::fs::write(dir.path().join("tool-pins.json"), "{\"form").unwrap();
        assert!(compare(&pins, list_with_digest("one")).is_err());
        assert_eq!(std::fs::read_to_string(dir.path().join("tool-pins.json")).unwrap(), "{\"form");
    }
}
