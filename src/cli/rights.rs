//! What the files say about rights, as `explain` and `matrix` need it.

use std::io;
use std::path::Path;

use crate::base::{ReadRefused, read_bounded};
use crate::config::{GatewayFile, GatewayFiles, Settings};
use crate::policy::{GatewayRules, Warning};

/// Rules are written by hand; a file beyond this is none.
const MAX_RULES_BYTES: u64 = 4 << 20;

/// The gateway's rules with what is odd about them.
#[derive(Debug)]
pub(super) struct LoadedRules {
    pub(super) rules: GatewayRules,
    pub(super) warnings: Vec<Warning>,
    pub(super) found: bool,
}

/// Reads the gateway's rules. No file at all means that nobody may do anything; a broken one is an error.
pub(super) fn load_rules(settings: &Settings) -> Result<LoadedRules, String> {
    let file = GatewayFiles::locate(settings).rules;
    match read_bounded(&file.path, MAX_RULES_BYTES) {
        Ok(bytes) => parse(&file.path, bytes),
        Err(ReadRefused::Io(error)) if is_absent(&file, &error) => Ok(LoadedRules {
            rules: GatewayRules::deny_all(&file.path),
            warnings: Vec::new(),
            found: false,
        }),
        Err(error) => Err(unreadable(&file, &error)),
    }
}

/// A file that nobody asked for by name may be missing.
fn is_absent(file: &GatewayFile, error: &io::Error) -> bool {
    file.named_by.is_none() && error.kind() == io::ErrorKind::NotFound
}

fn unreadable(file: &GatewayFile, error: &ReadRefused) -> String {
    let named = file.named_by.map(|name| format!(" (named by `{name}`)")).unwrap_or_default();
    format!("the rules `{}`{named} cannot be read: {error}", file.path.display())
}

fn parse(path: &Path, bytes: Vec<u8>) -> Result<LoadedRules, String> {
    let text = String::from_utf8(bytes)
        .map_err(|_| format!("the rules `{}` are not UTF-8 text", path.display()))?;
    match GatewayRules::parse(&text, path) {
        Ok((rules, warnings)) => Ok(LoadedRules { rules, warnings, found: true }),
        Err(problems) => {
            let lines: Vec<String> =
                problems.iter().map(|problem| problem.located().to_string()).collect();
            Err(format!("the rules are broken, so nothing can be said\n  {}", lines.join("\n  ")))
        }
    }
}
