//! Locates the files of the gateway, in the places and order that agent-mcp-gateway uses, plus our own.

use std::path::{Path, PathBuf};
use std::{env, fs};

use super::env_vars;
use super::settings::Settings;

pub(crate) const MCP_CONFIG_NAME: &str = ".mcp.json";
pub(crate) const RULES_NAME: &str = ".mcp-gateway-rules.json";

/// Content of a placeholder: the file counts as missing. It keeps a sandboxed agent from creating the file.
pub(crate) const PLACEHOLDER_TEXT: &str =
    "{\"mcpServers\": {}, \"adjutant\": \"placeholder while a sandboxed agent is running\"}\n";

const OWN_DIR: &str = "adjutant";
const PEER_DIR: &str = ".config/agent-mcp-gateway";

/// The configuration files of the gateway and its audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayFiles {
    pub mcp_config: GatewayFile,
    pub rules: GatewayFile,
    pub audit_log: PathBuf,
    /// Root of the project, whose extensions can contribute servers.
    pub root: PathBuf,
}

/// Location of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayFile {
    /// Path of the file; the first candidate if none exists.
    pub path: PathBuf,
    /// Set if the file existed.
    pub found: bool,
    /// Environment variable that names the file, if one is set; then the file must exist.
    pub named_by: Option<&'static str>,
    /// Candidates, in order of precedence.
    pub candidates: Vec<PathBuf>,
}

impl GatewayFile {
    /// Returns the first candidate that exists.
    fn first_of(candidates: Vec<PathBuf>, named_by: Option<&'static str>) -> Self {
        let found = candidates.iter().find(|path| path.exists() && !is_placeholder(path)).cloned();
        let path = found.clone().or_else(|| candidates.first().cloned()).unwrap_or_default();
        Self { path, found: found.is_some(), named_by, candidates }
    }

    /// Locates the file again, unless it was found before.
    ///
    /// A file that was found stays the one in use, even if it is deleted or a candidate of higher precedence appears:
    /// otherwise permissions could change while the gateway runs.
    #[must_use]
    pub fn relocate(&self) -> Self {
        match self.found {
            true => self.clone(),
            false => Self::first_of(self.candidates.clone(), self.named_by),
        }
    }
}

impl GatewayFiles {
    /// Locates both files again; see [`GatewayFile::relocate`].
    #[must_use]
    pub fn relocate(&self) -> Self {
        Self {
            mcp_config: self.mcp_config.relocate(),
            rules: self.rules.relocate(),
            ..self.clone()
        }
    }

    /// Locates the files: environment variables, project, user directories, then `config/` of the project.
    pub fn locate(settings: &Settings) -> Self {
        let places = GatewayFileCandidates {
            root: &settings.root,
            config_dir: dirs::config_dir(),
            home_dir: dirs::home_dir(),
            variable: &|name| env::var(name).ok(),
        };
        Self::locate_in(&places)
    }

    fn locate_in(places: &GatewayFileCandidates<'_>) -> Self {
        Self {
            mcp_config: places.locate_file(env_vars::GATEWAY_MCP_CONFIG, MCP_CONFIG_NAME),
            rules: places.locate_file(env_vars::GATEWAY_RULES, RULES_NAME),
            audit_log: places
                .path_in_variable(env_vars::GATEWAY_AUDIT_LOG)
                .unwrap_or_else(|| places.root.join("data/audit.jsonl")),
            root: places.root.to_path_buf(),
        }
    }
}

fn is_placeholder(path: &Path) -> bool {
    let length = fs::metadata(path).map_or(0, |found| found.len());
    length == PLACEHOLDER_TEXT.len() as u64
        && fs::read(path).is_ok_and(|bytes| bytes == PLACEHOLDER_TEXT.as_bytes())
}

/// Returns the user directories for gateway files: ours, then that of agent-mcp-gateway.
///
/// Files there apply to every project without files of its own.
pub(crate) fn user_config_dirs() -> Vec<PathBuf> {
    let own = dirs::config_dir().map(|config| config.join(OWN_DIR));
    let peer = dirs::home_dir().map(|home| home.join(PEER_DIR));
    own.into_iter().chain(peer).collect()
}

struct GatewayFileCandidates<'a> {
    root: &'a Path,
    config_dir: Option<PathBuf>,
    home_dir: Option<PathBuf>,
    variable: &'a dyn Fn(&str) -> Option<String>,
}

impl GatewayFileCandidates<'_> {
    fn locate_file(&self, variable: &'static str, name: &str) -> GatewayFile {
        if let Some(path) = self.path_in_variable(variable) {
            return GatewayFile::first_of(vec![path], Some(variable));
        }
        let own = self.config_dir.as_ref().map(|config| config.join(OWN_DIR));
        let peer = self.home_dir.as_ref().map(|home| home.join(PEER_DIR));
        let dirs = [Some(self.root.to_path_buf()), own, peer, Some(self.root.join("config"))];
        GatewayFile::first_of(dirs.into_iter().flatten().map(|f| f.join(name)).collect(), None)
    }

    /// Returns the path in a variable, absolute and with `~` expanded; an empty value counts as unset.
    fn path_in_variable(&self, variable: &str) -> Option<PathBuf> {
        let text = (self.variable)(variable).filter(|text| !text.trim().is_empty())?;
        let home = || self.home_dir.as_ref().and_then(|home| home.to_str().map(str::to_owned));
        let path = PathBuf::from(shellexpand::tilde_with_context(&text, home).as_ref());
        Some(std::path::absolute(&path).unwrap_or(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "{}").unwrap();
    }

    #[test]
    fn earlier_candidates_take_precedence() {
        let dir = tempfile::tempdir().unwrap();
        let (root, home) = (dir.path().join("p"), dir.path().join("h"));
        let locate = |value: &str| {
            let variable = |name: &str| (name == env_vars::GATEWAY_RULES).then(|| value.to_owned());
            let config = Some(home.join(".config"));
            let places = GatewayFileCandidates {
                root: &root,
                config_dir: config,
                home_dir: Some(home.clone()),
                variable: &variable,
            };
            GatewayFiles::locate_in(&places).rules
        };
        let nowhere = locate("");
        assert_eq!(
            (&nowhere.path, nowhere.found),
            (&root.join(RULES_NAME), false),
            "empty means unset"
        );
        let in_order = [
            root.join("config").join(RULES_NAME),
            home.join(".config/agent-mcp-gateway").join(RULES_NAME),
            home.join(".config/adjutant").join(RULES_NAME),
            root.join(RULES_NAME),
        ];
        for path in in_order {
            touch(&path);
            assert_eq!(locate("").path, path);
            assert_eq!(nowhere.relocate(), locate(""), "found later as at the start");
        }
        let own = locate("");
        fs::remove_file(&own.path).unwrap();
        assert_eq!(own.relocate(), own, "one that is gone is not looked for behind its place");
        touch(&own.path);
        fs::write(&own.path, PLACEHOLDER_TEXT).unwrap();
        assert_ne!(locate("").path, own.path, "a placeholder is no file");
        let named = locate("~/mine.json");
        assert_eq!((named.path, named.found), (home.join("mine.json"), false));
        assert_eq!(named.named_by, Some(env_vars::GATEWAY_RULES));
    }
}
