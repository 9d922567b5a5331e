//! Which files the gateway reads: the same places, in the same order, as people's existing set-ups.

use std::env;
use std::path::{Path, PathBuf};

use super::env_vars;
use super::settings::Settings;

/// The name of the file with the MCP servers.
pub const MCP_CONFIG_NAME: &str = ".mcp.json";
/// The name of the file with the rules.
pub const RULES_NAME: &str = ".mcp-gateway-rules.json";

const OWN_FOLDER: &str = "adjutant";
const PEER_FOLDER: &str = ".config/agent-mcp-gateway";

/// The gateway's two files and its audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayFiles {
    /// The MCP servers.
    pub mcp_config: GatewayFile,
    /// The rules.
    pub rules: GatewayFile,
    /// The audit log.
    pub audit_log: PathBuf,
    /// The project, whose extensions may bring servers.
    pub root: PathBuf,
}

/// One file and why it is this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayFile {
    /// Where it is, or, if there is none anywhere, where it would be looked for first.
    pub path: PathBuf,
    /// Whether something was there when it was looked for.
    pub found: bool,
    /// The variable that named it, if one did; then it has to be there.
    pub named_by: Option<&'static str>,
    /// Where it may be, the first first.
    pub places: Vec<PathBuf>,
}

impl GatewayFile {
    /// The first that is there.
    fn first_of(places: Vec<PathBuf>, named_by: Option<&'static str>) -> Self {
        let found = places.iter().find(|path| path.exists()).cloned();
        let path = found.clone().or_else(|| places.first().cloned()).unwrap_or_default();
        Self { path, found: found.is_some(), named_by, places }
    }

    /// Looks again, where none was found before. One that was found stays the one: a file that somebody puts into an earlier
    /// place while the gateway runs, or that lies in a later one when it is deleted, changes nobody's rights.
    #[must_use]
    pub fn again(&self) -> Self {
        match self.found {
            true => self.clone(),
            false => Self::first_of(self.places.clone(), self.named_by),
        }
    }
}

impl GatewayFiles {
    /// Looks again for both files, as [`GatewayFile::again`] does.
    #[must_use]
    pub fn again(&self) -> Self {
        Self { mcp_config: self.mcp_config.again(), rules: self.rules.again(), ..self.clone() }
    }

    /// Looks where the variables say, then in the project, our own folder, the peer's, and `config/`.
    pub fn locate(settings: &Settings) -> Self {
        let places = Places {
            root: &settings.root,
            config: dirs::config_dir(),
            home: dirs::home_dir(),
            variable: &|name| env::var(name).ok(),
        };
        Self::locate_in(&places)
    }

    fn locate_in(places: &Places<'_>) -> Self {
        Self {
            mcp_config: places.file(env_vars::GATEWAY_MCP_CONFIG, MCP_CONFIG_NAME),
            rules: places.file(env_vars::GATEWAY_RULES, RULES_NAME),
            audit_log: places
                .named(env_vars::GATEWAY_AUDIT_LOG)
                .unwrap_or_else(|| places.root.join("data/audit.jsonl")),
            root: places.root.to_path_buf(),
        }
    }
}

struct Places<'a> {
    root: &'a Path,
    config: Option<PathBuf>,
    home: Option<PathBuf>,
    variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Places<'_> {
    fn file(&self, variable: &'static str, name: &str) -> GatewayFile {
        if let Some(path) = self.named(variable) {
            return GatewayFile::first_of(vec![path], Some(variable));
        }
        let own = self.config.as_ref().map(|config| config.join(OWN_FOLDER));
        let peer = self.home.as_ref().map(|home| home.join(PEER_FOLDER));
        let folders = [Some(self.root.to_path_buf()), own, peer, Some(self.root.join("config"))];
        GatewayFile::first_of(folders.into_iter().flatten().map(|f| f.join(name)).collect(), None)
    }

    /// The path in a variable, with `~` expanded; empty means unset, relative means from here.
    fn named(&self, variable: &str) -> Option<PathBuf> {
        let text = (self.variable)(variable).filter(|text| !text.trim().is_empty())?;
        let home = || self.home.as_ref().and_then(|home| home.to_str().map(str::to_owned));
        let path = PathBuf::from(shellexpand::tilde_with_context(&text, home).as_ref());
        Some(std::path::absolute(&path).unwrap_or(path))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "{}").unwrap();
    }

    #[test]
    fn each_place_gives_way_to_the_ones_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let (root, home) = (dir.path().join("p"), dir.path().join("h"));
        let locate = |value: &str| {
            let variable = |name: &str| (name == env_vars::GATEWAY_RULES).then(|| value.to_owned());
            let config = Some(home.join(".config"));
            let places =
                Places { root: &root, config, home: Some(home.clone()), variable: &variable };
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
            assert_eq!(nowhere.again(), locate(""), "found later as at the start");
        }
        let own = locate("");
        fs::remove_file(&own.path).unwrap();
        assert_eq!(own.again(), own, "one that is gone is not looked for behind its place");
        touch(&own.path);
        let named = locate("~/mine.json");
        assert_eq!((named.path, named.found), (home.join("mine.json"), false));
        assert_eq!(named.named_by, Some(env_vars::GATEWAY_RULES));
    }
}
