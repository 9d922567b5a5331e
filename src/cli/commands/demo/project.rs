//! Temporary project in which the main agent may not use `curl` and the subagent may, and the page to fetch.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use axum::Router;
use axum::routing::get;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::store::{ScratchDir, write_project_file};

/// The demo project and an empty home, in a scratch directory.
pub(crate) struct DemoProject {
    scratch: ScratchDir,
    pub(crate) root: PathBuf,
    pub(crate) home: PathBuf,
}

impl DemoProject {
    pub(crate) fn build(page: &DemoPage) -> io::Result<Self> {
        let folder = ScratchDir::new()?;
        let root = folder.path().join("project");
        let home = folder.path().join("home");
        let scene = Self { scratch: folder, root, home };
        let settings =
            json!({ "permissions": { "deny": ["Bash(curl:*)", "Bash(wget:*)", "WebFetch"] } });
        scene.write(".claude/settings.json", &format!("{settings:#}\n"))?;
        scene.write("agents/web-search/agent.md", &agent_file_text(page))?;
        write_project_file(&scene.home.join(".keep"), b"")?;
        Ok(scene)
    }

    /// Writes a `.mcp.json` with this program as the server and returns its path.
    pub(crate) fn register(&self, claude: &Path) -> io::Result<PathBuf> {
        let program = std::env::current_exe()?;
        let server = json!({ "mcpServers": { "adjutant": {
            "command": program, "args": ["serve", "--root", self.root],
            "env": { "ADJUTANT_CLAUDE": claude },
        } } });
        self.write(".mcp.json", &format!("{server:#}\n"))?;
        Ok(self.root.join(".mcp.json"))
    }

    pub(crate) fn write(&self, file: &str, text: &str) -> io::Result<()> {
        write_project_file(&self.root.join(file), text.as_bytes())
    }

    pub(crate) fn scratch_dir(&self) -> &Path {
        self.scratch.path()
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.root.join("data")
    }

    pub(crate) fn events(&self) -> Vec<String> {
        let text = fs::read_to_string(self.data_dir().join("events.jsonl")).unwrap_or_default();
        text.lines().map(without_ids).collect()
    }
}

/// Removes the ids of an event, which only distract in the demo.
fn without_ids(line: &str) -> String {
    match serde_json::from_str::<Value>(line) {
        Ok(Value::Object(mut event)) => {
            event.retain(|name, _| !matches!(name.as_str(), "agent_id" | "run_id" | "pid"));
            Value::Object(event).to_string()
        }
        _ => line.to_owned(),
    }
}

fn agent_file_text(page: &DemoPage) -> String {
    format!(
        "---\nname: web-search\ndescription: Fetches pages with curl and says what they say\ntimeout_ms: 90000\n\
         permissions:\n  allow: [\"Bash(curl:*)\"]\n---\n\
         You fetch pages with `curl -s` and answer with what they say, in one sentence. \
         Today's page is {}.\n",
        page.url
    )
}

/// Content of the page, which an agent can know only by fetching it.
pub(crate) const SECRET: &str = "the harbour master's cat is called Nelson";

/// A web server with one page on loopback; stopped when dropped.
pub(crate) struct DemoPage {
    pub(crate) url: String,
    serving: AbortHandle,
}

impl DemoPage {
    pub(crate) async fn serve() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}/news.txt", listener.local_addr()?);
        let text = format!("News of the day: {SECRET}.\n");
        let router = Router::new().route("/news.txt", get(move || async move { text }));
        let serving = tokio::spawn(async move {
            // An error is irrelevant: the demo checks that the content of the page came back.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { url, serving: serving.abort_handle() })
    }
}

impl Drop for DemoPage {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
