//! A project for a moment: a main agent without `curl`, a subagent with it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::page::Page;
use crate::base::{ScratchDir, write_project_file};

/// The demo's project.
pub(super) struct Scene {
    folder: ScratchDir,
    pub(super) root: PathBuf,
    pub(super) home: PathBuf,
}

impl Scene {
    pub(super) fn build(page: &Page) -> io::Result<Self> {
        let folder = ScratchDir::new()?;
        let root = folder.path().join("project");
        let home = folder.path().join("home");
        let scene = Self { folder, root, home };
        let settings =
            json!({ "permissions": { "deny": ["Bash(curl:*)", "Bash(wget:*)", "WebFetch"] } });
        scene.write(".claude/settings.json", &format!("{settings:#}\n"))?;
        scene.write("agents/web-search/agent.md", &agent(page))?;
        write_project_file(&scene.home.join(".keep"), b"")?;
        Ok(scene)
    }

    /// Tells Claude Code about the server: this very program.
    pub(super) fn register(&self, claude: &Path) -> io::Result<PathBuf> {
        let program = std::env::current_exe()?;
        let server = json!({ "mcpServers": { "adjutant": {
            "command": program, "args": ["serve", "--root", self.root],
            "env": { "ADJUTANT_CLAUDE": claude },
        } } });
        self.write(".mcp.json", &format!("{server:#}\n"))?;
        Ok(self.root.join(".mcp.json"))
    }

    pub(super) fn write(&self, file: &str, text: &str) -> io::Result<()> {
        write_project_file(&self.root.join(file), text.as_bytes())
    }

    pub(super) fn scratch(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn data_dir(&self) -> PathBuf {
        self.root.join("data")
    }

    pub(super) fn events(&self) -> Vec<String> {
        let text = fs::read_to_string(self.data_dir().join("events.jsonl")).unwrap_or_default();
        text.lines().map(without_ids).collect()
    }
}

/// The line as it stands there, but for the ids, which say nothing to a first reader.
fn without_ids(line: &str) -> String {
    match serde_json::from_str::<Value>(line) {
        Ok(Value::Object(mut event)) => {
            event.retain(|name, _| !matches!(name.as_str(), "agent_id" | "run_id" | "pid"));
            Value::Object(event).to_string()
        }
        _ => line.to_owned(),
    }
}

fn agent(page: &Page) -> String {
    format!(
        "---\nname: web-search\ndescription: Fetches pages with curl and says what they say\ntimeout_ms: 90000\n\
         permissions:\n  allow: [\"Bash(curl:*)\"]\n---\n\
         You fetch pages with `curl -s` and answer with what they say, in one sentence. \
         Today's page is {}.\n",
        page.url
    )
}
