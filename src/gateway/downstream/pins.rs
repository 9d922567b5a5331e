//! Tool definitions, pinned when they are first seen: a server that later changes what a tool
//! says it does is found out.
//!
//! `data/tool-pins.json` holds what a person accepted (or what came first) and, beside it, what
//! the server says now; `adjutant trust SERVER` makes the second the first.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::GatewayError;
use super::tool_list::ToolList;
use crate::base::{FileLock, Timestamp, create_private_dir, now, read_bounded, write_atomic};

const FORMAT: u32 = 1;
const MAX_BYTES: u64 = 64 * 1024 * 1024;
const PATIENCE: Duration = Duration::from_secs(5);

/// The pins of a project.
pub struct Pins {
    path: PathBuf,
    changed: Mutex<BTreeMap<String, Vec<String>>>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct File {
    format: u32,
    servers: BTreeMap<String, BTreeMap<String, Pin>>,
    /// What was odd about a server's tools when they were last read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    odd: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Pin {
    accepted: String,
    since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    now: Option<String>,
}

/// What a person should look at.
#[derive(Clone, Debug)]
pub struct Findings {
    /// Tools that changed, by server.
    pub changed: BTreeMap<String, Vec<String>>,
    /// What is odd, by server.
    pub odd: BTreeMap<String, Vec<String>>,
}

impl Pins {
    /// The pins under a project's `data/`.
    pub fn new(data: &Path) -> Self {
        Self { path: data.join("tool-pins.json"), changed: Mutex::default() }
    }

    /// Compares a fresh list with what was seen before, remembers what is new, and returns the
    /// names of the tools that changed.
    pub fn compare(&self, server: &str, list: &ToolList) -> Result<Vec<String>, GatewayError> {
        let mut file = self.read()?;
        let pins = file.servers.entry(server.to_owned()).or_default();
        let before = pins.clone();
        let mut changed = Vec::new();
        for tool in &list.tools {
            let pin = pins.entry(tool.name.clone()).or_insert_with(|| Pin {
                accepted: tool.digest.clone(),
                since: now(),
                now: None,
            });
            if pin.accepted == tool.former_digest {
                pin.accepted.clone_from(&tool.digest);
            }
            let differs = pin.accepted != tool.digest;
            pin.now = differs.then(|| tool.digest.clone());
            if differs {
                changed.push(tool.name.clone());
            }
        }
        let same = *pins == before;
        let pins = pins.clone();
        if !same || file.odd.get(server).map_or(&[][..], Vec::as_slice) != list.warnings {
            self.write(server, pins, Some(&list.warnings))?;
        }
        self.with_changed(|all| all.insert(server.to_owned(), changed.clone()));
        Ok(changed)
    }

    /// The tools whose definitions changed, by server, as last compared.
    pub fn changed(&self) -> BTreeMap<String, Vec<String>> {
        self.with_changed(|all| {
            all.iter()
                .filter(|(_, tools)| !tools.is_empty())
                .map(|(s, t)| (s.clone(), t.clone()))
                .collect()
        })
    }

    /// Accepts what `server` says now; returns the tools that this concerns.
    pub fn trust(&self, server: &str) -> Result<Vec<String>, GatewayError> {
        let mut file = self.read()?;
        let Some(pins) = file.servers.get_mut(server) else { return Ok(Vec::new()) };
        let mut accepted = Vec::new();
        for (tool, pin) in pins.iter_mut() {
            if let Some(digest) = pin.now.take() {
                *pin = Pin { accepted: digest, since: now(), now: None };
                accepted.push(tool.clone());
            }
        }
        if !accepted.is_empty() {
            self.write(server, pins.clone(), None)?;
        }
        Ok(accepted)
    }

    /// The tools that nobody has accepted since they changed, by server; and what is odd about a
    /// server's tools: both as the gateway last saw them.
    pub fn findings(&self) -> Result<Findings, GatewayError> {
        let file = self.read()?;
        let unaccepted = |pins: BTreeMap<String, Pin>| -> Vec<String> {
            pins.into_iter().filter(|(_, pin)| pin.now.is_some()).map(|(tool, _)| tool).collect()
        };
        let changed = file.servers.into_iter().map(|(server, pins)| (server, unaccepted(pins)));
        let changed = changed.filter(|(_, tools)| !tools.is_empty()).collect();
        Ok(Findings { changed, odd: file.odd })
    }

    /// The servers that have pins.
    pub fn servers(&self) -> Result<Vec<String>, GatewayError> {
        Ok(self.read()?.servers.into_keys().collect())
    }

    fn read(&self) -> Result<File, GatewayError> {
        if !self.path.exists() {
            return Ok(File { format: FORMAT, ..File::default() });
        }
        let bytes = read_bounded(&self.path, MAX_BYTES).map_err(|e| self.problem(e.to_string()))?;
        let file: File = serde_json::from_slice(&bytes).map_err(|e| self.problem(e.to_string()))?;
        if file.format > FORMAT {
            return Err(self.problem("it was written by a newer Adjutant".to_owned()));
        }
        Ok(file)
    }

    /// Writes one server's pins; those of others are read again under the lock and kept.
    fn write(
        &self,
        server: &str,
        pins: BTreeMap<String, Pin>,
        odd: Option<&[String]>,
    ) -> Result<(), GatewayError> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        create_private_dir(folder).map_err(|error| self.problem(error.to_string()))?;
        let _lock = FileLock::acquire(&self.path.with_extension("lock"), PATIENCE)
            .map_err(|error| self.problem(error.to_string()))?;
        let mut file = self.read()?;
        file.servers.insert(server.to_owned(), pins);
        match odd {
            Some([]) => drop(file.odd.remove(server)),
            Some(odd) => drop(file.odd.insert(server.to_owned(), odd.to_vec())),
            None => {}
        }
        let text = serde_json::to_vec_pretty(&file).map_err(|e| self.problem(e.to_string()))?;
        write_atomic(&self.path, &text).map_err(|error| self.problem(error.to_string()))
    }

    fn problem(&self, reason: String) -> GatewayError {
        GatewayError::Pins { path: self.path.clone(), reason }
    }

    fn with_changed<T>(&self, act: impl FnOnce(&mut BTreeMap<String, Vec<String>>) -> T) -> T {
        act(&mut self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::tool_list::Tool;
    use serde_json::Value;

    fn list(digest: &str) -> ToolList {
        let tool = Tool {
            name: "t".to_owned(),
            definition: Value::Null,
            digest: format!("whole:{digest}"),
            former_digest: digest.to_owned(),
        };
        ToolList { tools: vec![tool], ..ToolList::default() }
    }

    #[test]
    fn a_changed_tool_is_found_until_it_is_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let pins = Pins::new(&dir.path().join("data"));
        assert!(pins.compare("s", &list("one")).unwrap().is_empty());
        assert_eq!(pins.compare("s", &list("two")).unwrap(), ["t"]);
        assert_eq!(Pins::new(&dir.path().join("data")).trust("s").unwrap(), ["t"]);
        assert!(pins.compare("s", &list("two")).unwrap().is_empty());
        assert_eq!(pins.compare("s", &list("one")).unwrap(), ["t"], "going back is a change too");
    }

    #[test]
    fn a_pin_of_the_former_kind_becomes_a_new_one_where_nothing_changed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tool-pins.json");
        let pin = r#"{"accepted": "one", "since": "2026-01-01T00:00:00Z"}"#;
        std::fs::write(&file, format!(r#"{{"format":1,"servers":{{"s":{{"t":{pin}}}}}}}"#))
            .unwrap();
        let pins = Pins::new(dir.path());
        assert_eq!(pins.compare("s", &list("two")).unwrap(), ["t"]);
        assert!(pins.compare("s", &list("one")).unwrap().is_empty());
        assert!(std::fs::read_to_string(&file).unwrap().contains("whole:one"));
    }

    #[test]
    fn a_torn_file_is_said_and_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let pins = Pins::new(dir.path());
        std::fs::write(dir.path().join("tool-pins.json"), "{\"form").unwrap();
        assert!(pins.compare("s", &list("one")).is_err());
        assert_eq!(std::fs::read_to_string(dir.path().join("tool-pins.json")).unwrap(), "{\"form");
    }
}
