//! Reads the tables of `docs/architecture.md`, which are the rules.

use std::collections::{BTreeMap, BTreeSet};

/// Rules of the document.
#[derive(Debug, Default)]
pub struct Rules {
    /// Folders and the folders each may import, in the order of the table.
    pub layers: Vec<(String, BTreeSet<String>)>,
    pub effects: Vec<Effect>,
    /// File and path, each with the reason.
    pub exceptions: BTreeMap<(String, String), String>,
}

/// A side effect and the places where code may have it.
#[derive(Debug)]
pub struct Effect {
    pub name: String,
    pub places: Places,
    /// Paths that show the effect.
    pub seen_as: Vec<String>,
}

/// Folders, or files below `src/`.
#[derive(Debug)]
pub enum Places {
    Only(Vec<String>),
    Not(Vec<String>),
}

impl Rules {
    /// Reads the document; a table that is missing or malformed is an error, never an empty set of rules.
    pub fn parse(document: &str) -> Result<Self, String> {
        let mut rules = Self::default();
        for [folder, _, imports] in rows(document, "layers")? {
            let folder = one(&folder)?;
            let allowed = match imports.as_str() {
                "nothing" => BTreeSet::new(),
                "all above" => rules.layers.iter().map(|(name, _)| name.clone()).collect(),
                listed => quoted(listed).into_iter().collect(),
            };
            rules.layers.push((folder, allowed));
        }
        for [name, places, seen_as] in rows(document, "effects")? {
            let names = quoted(&places);
            let places =
                if places.starts_with("not ") { Places::Not(names) } else { Places::Only(names) };
            rules.effects.push(Effect { name, places, seen_as: quoted(&seen_as) });
        }
        for [file, path, reason] in rows(document, "exceptions")? {
            rules.exceptions.insert((one(&file)?, one(&path)?), reason);
        }
        rules.check().map(|()| rules)
    }

    fn check(&self) -> Result<(), String> {
        let known: BTreeSet<&str> = self.layers.iter().map(|(name, _)| name.as_str()).collect();
        for (folder, imports) in &self.layers {
            if let Some(unknown) = imports.iter().find(|name| !known.contains(name.as_str())) {
                return Err(format!("`{folder}` may import `{unknown}`, which is not a folder"));
            }
        }
        match self.exceptions.iter().find(|(_, reason)| reason.len() < 10) {
            Some(((file, path), _)) => Err(format!("no reason is given for `{path}` in `{file}`")),
            None => Ok(()),
        }
    }
}

/// The rows of the table after `<!-- table: NAME -->`, without its head.
fn rows(document: &str, name: &str) -> Result<Vec<[String; 3]>, String> {
    let marker = format!("<!-- table: {name} -->\n");
    let (_, after) = document.split_once(&marker).ok_or(format!("no table `{name}`"))?;
    let lines = after.lines().take_while(|line| line.starts_with('|'));
    lines.skip(2).map(|line| cells(line).ok_or(format!("not three cells: {line}"))).collect()
}

fn cells(line: &str) -> Option<[String; 3]> {
    let inner = line.strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<String> = inner.split('|').map(|cell| cell.trim().to_owned()).collect();
    cells.try_into().ok()
}

fn one(cell: &str) -> Result<String, String> {
    quoted(cell).into_iter().next().ok_or(format!("nothing in backticks: {cell}"))
}

/// Texts in backticks.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}
