//! Source positions of a YAML text by path, computed only when a problem must be located.
//!
//! Values come from `serde_yaml` alone; this second parser only yields positions.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use saphyr_parser::{Event, Parser, ScanError, Span, StrInput};

/// Maximum nesting of mappings and lists.
pub(crate) const MAX_DEPTH: usize = 32;

/// Position and length within one line, counted from 1 in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourcePosition {
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) length: usize,
}

impl SourcePosition {
    /// Start of the file.
    pub(crate) const START: Self = Self { line: 1, column: 1, length: 1 };

    /// A position of length 1.
    pub(crate) fn at(line: usize, column: usize) -> Self {
        Self { line, column, length: 1 }
    }

    fn from_span(span: Span, first_line: usize) -> Self {
        let same_line = span.start.line() == span.end.line();
        let length = if same_line { span.len().max(1) } else { 1 };
        Self { line: span.start.line() + first_line - 1, column: span.start.col() + 1, length }
    }
}

/// Positions and syntax findings of one document.
#[derive(Debug, Default)]
pub(crate) struct SourcePositions {
    keys: HashMap<String, SourcePosition>,
    values: HashMap<String, SourcePosition>,
    /// Path and position of each repeated key.
    pub(crate) duplicates: Vec<(String, SourcePosition)>,
    /// Anchors and aliases.
    pub(crate) anchors: Vec<SourcePosition>,
    /// Tags such as `!!binary`.
    pub(crate) tags: Vec<SourcePosition>,
    /// First position deeper than [`MAX_DEPTH`]; parsing stops there.
    pub(crate) too_deep: Option<SourcePosition>,
    /// Position and message of a syntax error.
    pub(crate) syntax_error: Option<(SourcePosition, String)>,
}

impl SourcePositions {
    /// Parses `yaml`; `first_line` is the line of the file where the text begins.
    pub(crate) fn parse(yaml: &str, first_line: usize) -> Self {
        let mut reading =
            PositionReader { first_line, levels: Vec::new(), positions: Self::default() };
        let mut parser = Parser::new_from_str(yaml);
        reading.run(&mut parser);
        reading.positions
    }

    /// Returns the position of a key, or of the nearest known ancestor.
    pub(crate) fn key_position(&self, path: &str) -> SourcePosition {
        self.keys.get(path).copied().unwrap_or_else(|| self.value_position(path))
    }

    /// Returns the position of a value, or of the nearest known ancestor.
    pub(crate) fn value_position(&self, path: &str) -> SourcePosition {
        let mut path = path;
        loop {
            if let Some(position) = self.values.get(path).or_else(|| self.keys.get(path)) {
                return *position;
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = path.get(..end).unwrap_or_default(),
                None => return SourcePosition::START,
            }
        }
    }

    /// Returns the line of a key, if the document has the key.
    pub(crate) fn line_of(&self, path: &str) -> Option<usize> {
        self.keys.get(path).map(|position| position.line)
    }
}

pub(crate) fn join_key(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

pub(crate) fn join_index(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

enum NestingLevel {
    List {
        path: String,
        next: usize,
    },
    /// `key` is the path of the key whose value comes next, or `None` if a key comes next.
    Map {
        path: String,
        key: Option<String>,
    },
}

struct PositionReader {
    first_line: usize,
    levels: Vec<NestingLevel>,
    positions: SourcePositions,
}

impl PositionReader {
    fn run(&mut self, parser: &mut Parser<'_, StrInput<'_>>) {
        while self.positions.too_deep.is_none() {
            match parser.next_event() {
                None => return,
                Some(Ok((event, span))) => self.handle_event(&event, span),
                Some(Err(error)) => return self.record_syntax_error(&error),
            }
        }
    }

    fn record_syntax_error(&mut self, error: &ScanError) {
        let mark = error.marker();
        let position = SourcePosition::at(mark.line() + self.first_line - 1, mark.col() + 1);
        self.positions.syntax_error = Some((position, error.info().to_owned()));
    }

    fn handle_event(&mut self, event: &Event<'_>, span: Span) {
        let position = SourcePosition::from_span(span, self.first_line);
        self.record_anchors_and_tags(event, position);
        match event {
            Event::Scalar(text, ..) => self.scalar(text, position),
            Event::Alias(_) => self.scalar("*", position),
            Event::SequenceStart(..) => {
                self.enter(position, |path| NestingLevel::List { path, next: 0 });
            }
            Event::MappingStart(..) => {
                self.enter(position, |path| NestingLevel::Map { path, key: None });
            }
            Event::SequenceEnd | Event::MappingEnd => drop(self.levels.pop()),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => {}
        }
    }

    fn record_anchors_and_tags(&mut self, event: &Event<'_>, position: SourcePosition) {
        let (anchor, tag) = match event {
            Event::Alias(_) => (true, false),
            Event::Scalar(_, _, anchor, tag) => (*anchor != 0, tag.is_some()),
            Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag) => {
                (*anchor != 0, tag.is_some())
            }
            _ => (false, false),
        };
        if anchor {
            self.positions.anchors.push(position);
        }
        if tag {
            self.positions.tags.push(position);
        }
    }

    fn scalar(&mut self, text: &str, position: SourcePosition) {
        if let Some(NestingLevel::Map { path, key: key @ None }) = self.levels.last_mut() {
            let key_path = join_key(path, text);
            *key = Some(key_path.clone());
            match self.positions.keys.entry(key_path) {
                Entry::Occupied(first) => {
                    self.positions.duplicates.push((first.key().clone(), position));
                }
                Entry::Vacant(slot) => drop(slot.insert(position)),
            }
            return;
        }
        let path = self.next_path();
        self.positions.values.insert(path, position);
    }

    fn enter(&mut self, position: SourcePosition, level: impl FnOnce(String) -> NestingLevel) {
        if self.levels.len() >= MAX_DEPTH {
            self.positions.too_deep = Some(position);
            return;
        }
        let path = self.next_path();
        // Problems with a block mapping are shown at its key.
        if !self.positions.keys.contains_key(&path) {
            self.positions.values.insert(path.clone(), position);
        }
        self.levels.push(level(path));
    }

    /// Returns the path of the next value.
    fn next_path(&mut self) -> String {
        match self.levels.last_mut() {
            None => String::new(),
            Some(NestingLevel::List { path, next }) => {
                let item = join_index(path, *next);
                *next += 1;
                item
            }
            // A mapping used as a key gets the key `?`.
            Some(NestingLevel::Map { path, key }) => key.take().unwrap_or_else(|| {
                let complex_key = join_key(path, "?");
                *key = Some(complex_key.clone());
                complex_key
            }),
        }
    }
}
