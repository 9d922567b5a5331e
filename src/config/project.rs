//! Finds the project of a folder: the folder itself or its nearest parent that is a project.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::gateway_files::{MCP_CONFIG_NAME, RULES_NAME};
use super::settings::SettingsError;

const SERVER_NAME: &str = "adjutant";
/// Size limit of `.mcp.json` in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// State of a folder on disk.
#[derive(Clone, Copy, Debug, Default)]
struct FolderState {
    is_project: bool,
    is_foreign: bool,
}

/// Returns the nearest project: `start` or one of its parents. `start` is absolute and without symlinks.
///
/// A parent of another user is refused: its files would decide what runs with the permissions of this user.
pub(crate) fn find_project(start: &Path) -> Result<PathBuf, SettingsError> {
    nearest_project(start, FolderState::read)
}

fn nearest_project(
    start: &Path,
    state: impl Fn(&Path) -> FolderState,
) -> Result<PathBuf, SettingsError> {
    let found = start.ancestors().map(|path| (path, state(path))).find(|(_, s)| s.is_project);
    match found {
        Some((path, FolderState { is_foreign: true, .. })) if path != start => {
            Err(SettingsError::ForeignProject { path: path.to_owned() })
        }
        Some((path, _)) => Ok(path.to_owned()),
        None => Err(SettingsError::NoProject { start: start.to_owned() }),
    }
}

impl FolderState {
    fn read(path: &Path) -> Self {
        let is_project = path.join(".git").exists()
            || [RULES_NAME.into(), Path::new("config").join(RULES_NAME)]
                .iter()
                .any(|file: &PathBuf| path.join(file).is_file())
            || has_agents(&path.join("agents"))
            || names_adjutant(&path.join(MCP_CONFIG_NAME));
        let own = nix::unistd::geteuid().as_raw();
        let is_foreign = is_project && fs::metadata(path).map_or(true, |found| found.uid() != own);
        Self { is_project, is_foreign }
    }
}

/// Returns true for a folder of agents. A Python package named `agents` is none, even if it has a module `main`.
fn has_agents(agents: &Path) -> bool {
    if agents.join("defaults.yaml").is_file() {
        return true;
    }
    let is_package = agents.join("__init__.py").exists();
    let Ok(entries) = fs::read_dir(agents) else { return false };
    (agents.join("main").is_dir() && !is_package)
        || entries.flatten().any(|entry| entry.path().join("agent.md").is_file())
}

/// Returns true if a server in `.mcp.json` is called `adjutant` or starts a program of that name.
fn names_adjutant(mcp_config: &Path) -> bool {
    let mut bytes = Vec::new();
    let read =
        File::open(mcp_config).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes));
    let content = read.ok().and_then(|_| serde_json::from_slice::<Value>(&bytes).ok());
    let servers = content.as_ref().and_then(|content| content.get("mcpServers")?.as_object());
    let is_ours = |(name, server): (&String, &Value)| {
        let program = server.get("command").and_then(Value::as_str).map(Path::new);
        name == SERVER_NAME
            || program.and_then(Path::file_name).is_some_and(|name| name == SERVER_NAME)
    };
    servers.into_iter().flatten().any(is_ours)
}

#[cfg(test)]
mod tests {
    use test_case::test_case;

    use super::*;

    fn nearest(projects: &[&str], foreign: &[&str]) -> Result<PathBuf, String> {
        let is = |paths: &[&str], path: &Path| paths.iter().any(|one| Path::new(one) == path);
        let state = |path: &Path| FolderState {
            is_project: is(projects, path),
            is_foreign: is(foreign, path),
        };
        nearest_project(Path::new("/a/b/c"), state).map_err(|error| error.to_string())
    }

    #[test]
    fn the_nearest_project_is_chosen() {
        assert_eq!(nearest(&["/a", "/a/b"], &["/a"]), Ok("/a/b".into()));
        assert_eq!(nearest(&["/a/b/c", "/a"], &[]), Ok("/a/b/c".into()));
        assert_eq!(nearest(&["/"], &[]), Ok("/".into()));
        assert!(nearest(&[], &[]).unwrap_err().starts_with("`/a/b/c` is not in a project"));
    }

    #[test]
    fn a_parent_of_another_user_is_refused_and_the_current_folder_is_not() {
        let error = nearest(&["/a/b", "/a"], &["/a/b"]).unwrap_err();
        assert!(error.starts_with("the project `/a/b` belongs to another user"), "{error}");
        assert_eq!(nearest(&["/a/b/c"], &["/a/b/c"]), Ok("/a/b/c".into()));
    }

    #[test_case("agents/main/system-prompt.md", "", true)]
    #[test_case("agents/defaults.yaml", "", true)]
    #[test_case("agents/helper/agent.md", "", true)]
    #[test_case("agents/__init__.py", "", false; "a Python package")]
    #[test_case("agents/worker/run.py", "", false; "a package without its marker")]
    #[test_case(".git/HEAD", "", true)]
    #[test_case(".git", "gitdir: ../x", true; "a worktree")]
    #[test_case(".mcp-gateway-rules.json", "{}", true)]
    #[test_case("config/.mcp-gateway-rules.json", "{}", true)]
    #[test_case(".mcp.json", r#"{"mcpServers": {"adjutant": {}}}"#, true)]
    #[test_case(".mcp.json", r#"{"mcpServers": {"x": {"command": "/opt/adjutant"}}}"#, true; "another name")]
    #[test_case(".mcp.json", r#"{"mcpServers": {"x": {"command": "npx"}}}"#, false; "other servers")]
    #[test_case(".mcp.json", "{", false; "no JSON")]
    #[test_case("data/events.jsonl", "", false)]
    fn a_project_is_known_by_its_files(file: &str, content: &str, expected: bool) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        assert_eq!(FolderState::read(folder.path()).is_project, expected);
    }

    #[test]
    fn a_python_package_with_a_module_main_is_no_project() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("agents/main")).unwrap();
        fs::write(folder.path().join("agents/__init__.py"), "").unwrap();
        assert!(!FolderState::read(folder.path()).is_project);
    }
}
