//! Parser of the paths that a Rust file mentions: without comments, strings and test code, and with `use` lines and aliases
//! resolved.

use std::collections::HashMap;
use std::iter::Peekable;

use proc_macro2::{Delimiter, Group, Ident, Spacing, TokenStream, TokenTree, token_stream};

/// A path that a file mentions, made absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mention {
    pub line: usize,
    /// `std::fs::write`, `crate::base::now`, `println!`, `.sync_all()`; a glob ends in `*`.
    pub path: String,
}

/// The type whose `lock` is an flock.
const FILE: &str = "std::fs::File";

type Tokens = Peekable<token_stream::IntoIter>;

/// Returns every path in `source`, the file of `module` (`["policy", "rules"]` for `policy/rules.rs`).
pub fn mentions(source: &str, module: &[&str]) -> Result<Vec<Mention>, String> {
    let stream: TokenStream = source.parse().map_err(|error| format!("cannot be read: {error}"))?;
    let mut found =
        Found { module: module.iter().map(ToString::to_string).collect(), ..Found::default() };
    found.walk(stream);
    Ok(found.resolved())
}

/// Returns the first item with a body (`fn`, `impl`, `struct`, …) outside of test code.
pub fn first_logic(source: &str) -> Option<(usize, String)> {
    const LOGIC: [&str; 8] =
        ["fn", "impl", "struct", "enum", "trait", "macro_rules", "static", "const"];
    let mut tokens = source.parse::<TokenStream>().ok()?.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => skip_if_test(&mut tokens),
            TokenTree::Ident(word) if LOGIC.contains(&word.to_string().as_str()) => {
                return Some((word.span().start().line, word.to_string()));
            }
            _ => {}
        }
    }
    None
}

/// Returns the modules that are compiled only for tests and have their own file: `name`, or `./file` with a `#[path]`.
pub fn test_modules(source: &str) -> Vec<String> {
    let Ok(stream) = source.parse::<TokenStream>() else { return Vec::new() };
    let mut tokens = stream.into_iter().peekable();
    let mut found = Vec::new();
    while let Some(token) = tokens.next() {
        if matches!(&token, TokenTree::Punct(mark) if mark.as_char() == '#') {
            found.extend(test_item(&mut tokens).and_then(|item| module_file(&item)));
        }
    }
    found
}

fn module_file(item: &[TokenTree]) -> Option<String> {
    let words: Vec<String> = item.iter().map(ToString::to_string).collect();
    let ends_the_file = words.last()? == ";";
    let name = words.get(words.iter().position(|word| word == "mod")? + 1)?;
    let path = words.iter().find_map(|word| word.strip_prefix("[path = \"")?.strip_suffix("\"]"));
    ends_the_file.then(|| path.map_or_else(|| name.clone(), |path| format!("./{path}")))
}

#[derive(Default)]
struct Found {
    module: Vec<String>,
    /// Names imported by `use` lines, with their paths.
    names: HashMap<String, String>,
    imports: Vec<Mention>,
    uses: Vec<Mention>,
}

impl Found {
    fn walk(&mut self, stream: TokenStream) {
        let mut tokens = stream.into_iter().peekable();
        let mut before = [String::new(), String::new()];
        while let Some(token) = tokens.next() {
            let [receiver, dot] = &before;
            // Two dots are a range, and `self` is no file but has one.
            let after_dot = dot == "." && receiver != ".";
            let word = match &token {
                TokenTree::Group(_) => String::new(),
                other => other.to_string(),
            };
            let after_dot = after_dot && !(receiver == "self" && word == "lock");
            let [_, last] = before;
            before = [last, word];
            match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' => skip_if_test(&mut tokens),
                TokenTree::Group(group) => self.walk(group.stream()),
                TokenTree::Ident(word) if after_dot && is_mutex_lock(&word, &tokens) => {}
                TokenTree::Ident(word) if after_dot && is_call(&mut tokens) => {
                    let line = word.span().start().line;
                    self.uses.push(Mention { line, path: format!(".{word}()") });
                }
                TokenTree::Ident(word) if word == "use" => self.import_tree("", &mut tokens),
                TokenTree::Ident(word) => {
                    let line = word.span().start().line;
                    let path = rest_of_path(word.to_string(), &mut tokens);
                    self.uses.push(Mention { line, path });
                }
                _ => {}
            }
        }
    }

    /// Parses one branch of a `use`: `a::b`, `a::b as c`, `a::*`, `a::{…}`; ends at `,`, `;` or the group's end.
    fn import_tree(&mut self, prefix: &str, tokens: &mut Tokens) {
        let mut path = prefix.to_owned();
        let mut line = 0;
        let mut name = String::new();
        for token in tokens.by_ref() {
            match token {
                TokenTree::Punct(mark) if matches!(mark.as_char(), ',' | ';') => break,
                TokenTree::Punct(mark) if mark.as_char() == '*' => {
                    line = mark.span().start().line;
                    path = join(&path, "*");
                }
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    self.import_branches(&path, &group);
                    return skip_semicolon(tokens);
                }
                // `as` renames the path to the following word.
                TokenTree::Ident(word) if word == "as" => line = 0,
                TokenTree::Ident(word) => {
                    let renamed = line == 0 && !name.is_empty();
                    line = word.span().start().line;
                    name = word.to_string();
                    let is_path_prefix = name == "self" && !path.is_empty();
                    if !renamed && !is_path_prefix {
                        path = join(&path, &name);
                    }
                }
                _ => {}
            }
        }
        if line > 0 {
            self.import(Mention { line, path }, &name);
        }
    }

    fn import_branches(&mut self, prefix: &str, group: &Group) {
        let mut tokens = group.stream().into_iter().peekable();
        while tokens.peek().is_some() {
            self.import_tree(prefix, &mut tokens);
        }
    }

    fn import(&mut self, mention: Mention, name: &str) {
        let own_name = mention.path.rsplit("::").next().unwrap_or_default();
        let name = if name == "self" { own_name } else { name };
        self.names.insert(name.to_owned(), mention.path.clone());
        self.imports.push(mention);
    }

    fn resolved(self) -> Vec<Mention> {
        let absolute = |path: &str| self.absolute(path);
        let imports = self.imports.iter().map(|m| (m, absolute(&m.path)));
        // A single word is a variable, a field, or a type whose `use` line was already recorded.
        let said = |m: &&Mention| {
            m.path.contains("::") || m.path.ends_with('!') || m.path.starts_with('.')
        };
        let uses = self.uses.iter().filter(said).map(|m| {
            let (first, rest) = m.path.split_once("::").unwrap_or((&m.path, ""));
            let whole = self.names.get(first).map(|full| join(full, rest));
            (m, absolute(whole.as_deref().unwrap_or(&m.path)))
        });
        let mut all: Vec<Mention> =
            imports.chain(uses).map(|(m, path)| Mention { line: m.line, path }).collect();
        // Other types have the same method, so only a file that names `File` counts.
        if all.iter().any(|m| m.path == FILE || m.path.starts_with(&format!("{FILE}::"))) {
            for mention in all.iter_mut().filter(|m| m.path == ".lock()") {
                mention.path = format!("{FILE}::lock");
            }
        }
        all.sort_by(|a, b| (a.line, &a.path).cmp(&(b.line, &b.path)));
        all.dedup();
        all
    }

    /// Resolves `super::` and `self::` from the crate root.
    fn absolute(&self, path: &str) -> String {
        let mut module = self.module.clone();
        let mut parts = path.split("::").peekable();
        let relative = matches!(parts.peek(), Some(&"super" | &"self"));
        if !relative {
            return path.to_owned();
        }
        while let Some(part) = parts.next_if(|part| matches!(*part, "super" | "self")) {
            if part == "super" {
                module.pop();
            }
        }
        let all = ["crate".to_owned()].into_iter().chain(module);
        all.chain(parts.map(str::to_owned)).collect::<Vec<_>>().join("::")
    }
}

fn join(prefix: &str, rest: &str) -> String {
    match (prefix, rest) {
        ("", rest) => rest.to_owned(),
        (prefix, "") => prefix.to_owned(),
        (prefix, rest) => format!("{prefix}::{rest}"),
    }
}

/// Appends each following `::word` to a path; a macro keeps its `!`.
fn rest_of_path(mut path: String, tokens: &mut Tokens) -> String {
    loop {
        let mut ahead = tokens.clone();
        if !is_colons(&mut ahead) {
            break;
        }
        let Some(TokenTree::Ident(word)) = ahead.next() else { break };
        path = join(&path, &word.to_string());
        *tokens = ahead;
    }
    if let Some(TokenTree::Punct(mark)) = tokens.peek()
        && mark.as_char() == '!'
        && mark.spacing() == Spacing::Alone
    {
        path.push('!');
    }
    path
}

/// After a dot and a word: `(…)` or `::<…>(…)`, not a field.
fn is_call(tokens: &mut Tokens) -> bool {
    match tokens.peek() {
        Some(TokenTree::Group(group)) => group.delimiter() == Delimiter::Parenthesis,
        Some(TokenTree::Punct(mark)) => mark.as_char() == ':',
        _ => false,
    }
}

/// `.lock()` of a mutex: its guard is taken by `.unwrap_or_else(…)` or `.await`, the `()` of a file's lock is not.
fn is_mutex_lock(word: &Ident, tokens: &Tokens) -> bool {
    if word != "lock" {
        return false;
    }
    let after: Vec<String> = tokens.clone().skip(1).take(2).map(|it| it.to_string()).collect();
    matches!(after.as_slice(), [dot, taken] if dot == "." && matches!(taken.as_str(), "unwrap_or_else" | "await"))
}

fn is_colons(tokens: &mut Tokens) -> bool {
    let mut colon =
        || matches!(tokens.next(), Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
    colon() && colon()
}

fn skip_semicolon(tokens: &mut Tokens) {
    tokens.next_if(
        |token| matches!(token, TokenTree::Punct(mark) if matches!(mark.as_char(), ';' | ',')),
    );
}

/// Skips the item after a `#[cfg(test)]`; called after the `#`.
fn skip_if_test(tokens: &mut Tokens) {
    test_item(tokens);
}

fn test_item(tokens: &mut Tokens) -> Option<Vec<TokenTree>> {
    let TokenTree::Group(attribute) = tokens.peek()? else { return None };
    if attribute.stream().to_string().replace(' ', "") != "cfg(test)" {
        return None;
    }
    let mut item = Vec::new();
    for token in tokens.by_ref() {
        let last = match &token {
            TokenTree::Punct(mark) => mark.as_char() == ';',
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            _ => false,
        };
        item.push(token);
        if last {
            break;
        }
    }
    Some(item)
}
