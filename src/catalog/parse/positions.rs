//! Where in a YAML text something stands, by its path; built only when there is a reason to.
//!
//! Values come from `serde_yaml` alone; this second reading knows nothing of meaning.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use saphyr_parser::{Event, Parser, ScanError, Span, StrInput};

/// How deep mappings and lists may stand in each other.
pub(super) const MAX_DEPTH: usize = 32;

/// A stretch of one line of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) length: usize,
}

impl Place {
    /// The beginning of the file.
    pub(super) const START: Self = Self { line: 1, column: 1, length: 1 };

    /// A place of one character.
    pub(super) fn at(line: usize, column: usize) -> Self {
        Self { line, column, length: 1 }
    }

    fn of(span: Span, first_line: usize) -> Self {
        let same_line = span.start.line() == span.end.line();
        let length = if same_line { span.len().max(1) } else { 1 };
        Self { line: span.start.line() + first_line - 1, column: span.start.col() + 1, length }
    }
}

/// What the second reading found.
#[derive(Debug, Default)]
pub(super) struct Positions {
    keys: HashMap<String, Place>,
    values: HashMap<String, Place>,
    /// Keys that were there before, with the place of the second.
    pub(super) duplicates: Vec<(String, Place)>,
    /// Anchors and aliases.
    pub(super) anchors: Vec<Place>,
    /// Tags such as `!!binary`.
    pub(super) tags: Vec<Place>,
    /// Where it goes deeper than [`MAX_DEPTH`].
    pub(super) too_deep: Option<Place>,
    /// Where the reading stopped.
    pub(super) failure: Option<(Place, String)>,
}

impl Positions {
    /// Reads `yaml`, whose first line is `first_line` of its file.
    pub(super) fn of(yaml: &str, first_line: usize) -> Self {
        let mut reading = Reading { first_line, levels: Vec::new(), found: Self::default() };
        let mut parser = Parser::new_from_str(yaml);
        reading.run(&mut parser);
        reading.found
    }

    /// The place of a key, or of the nearest thing around it that is known.
    pub(super) fn key(&self, path: &str) -> Place {
        self.keys.get(path).copied().unwrap_or_else(|| self.value(path))
    }

    /// The place of a value, or of the nearest thing around it that is known.
    pub(super) fn value(&self, path: &str) -> Place {
        let mut path = path;
        loop {
            if let Some(place) = self.values.get(path).or_else(|| self.keys.get(path)) {
                return *place;
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = path.get(..end).unwrap_or_default(),
                None => return Place::START,
            }
        }
    }

    /// The line of a key, if the text has that key.
    pub(super) fn line_of(&self, path: &str) -> Option<usize> {
        self.keys.get(path).map(|place| place.line)
    }
}

/// The path of `key` below `path`.
pub(super) fn join_key(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The path of the item `index` below `path`.
pub(super) fn join_index(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

enum Level {
    List {
        path: String,
        next: usize,
    },
    /// `key` is the path of the key whose value comes next; `None` while a key is awaited.
    Map {
        path: String,
        key: Option<String>,
    },
}

struct Reading {
    first_line: usize,
    levels: Vec<Level>,
    found: Positions,
}

impl Reading {
    fn run(&mut self, parser: &mut Parser<'_, StrInput<'_>>) {
        while self.found.too_deep.is_none() {
            match parser.next_event() {
                None => return,
                Some(Ok((event, span))) => self.take(&event, span),
                Some(Err(error)) => return self.fail(&error),
            }
        }
    }

    fn fail(&mut self, error: &ScanError) {
        let mark = error.marker();
        let place = Place::at(mark.line() + self.first_line - 1, mark.col() + 1);
        self.found.failure = Some((place, error.info().to_owned()));
    }

    fn take(&mut self, event: &Event<'_>, span: Span) {
        let place = Place::of(span, self.first_line);
        self.note_oddities(event, place);
        match event {
            Event::Scalar(text, ..) => self.scalar(text, place),
            Event::Alias(_) => self.scalar("*", place),
            Event::SequenceStart(..) => self.open(place, |path| Level::List { path, next: 0 }),
            Event::MappingStart(..) => self.open(place, |path| Level::Map { path, key: None }),
            Event::SequenceEnd | Event::MappingEnd => drop(self.levels.pop()),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => {}
        }
    }

    fn note_oddities(&mut self, event: &Event<'_>, place: Place) {
        let (anchor, tag) = match event {
            Event::Alias(_) => (true, false),
            Event::Scalar(_, _, anchor, tag) => (*anchor != 0, tag.is_some()),
            Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag) => {
                (*anchor != 0, tag.is_some())
            }
            _ => (false, false),
        };
        if anchor {
            self.found.anchors.push(place);
        }
        if tag {
            self.found.tags.push(place);
        }
    }

    fn scalar(&mut self, text: &str, place: Place) {
        if let Some(Level::Map { path, key: key @ None }) = self.levels.last_mut() {
            let whole = join_key(path, text);
            *key = Some(whole.clone());
            match self.found.keys.entry(whole) {
                Entry::Occupied(first) => {
                    self.found.duplicates.push((first.key().clone(), place));
                }
                Entry::Vacant(slot) => drop(slot.insert(place)),
            }
            return;
        }
        let path = self.next_path();
        self.found.values.insert(path, place);
    }

    fn open(&mut self, place: Place, level: impl FnOnce(String) -> Level) {
        if self.levels.len() >= MAX_DEPTH {
            self.found.too_deep = Some(place);
            return;
        }
        let path = self.next_path();
        // A block mapping has no place of its own; what is wrong with it is shown at its key.
        if !self.found.keys.contains_key(&path) {
            self.found.values.insert(path.clone(), place);
        }
        self.levels.push(level(path));
    }

    /// The path of the value that comes now.
    fn next_path(&mut self) -> String {
        match self.levels.last_mut() {
            None => String::new(),
            Some(Level::List { path, next }) => {
                let item = join_index(path, *next);
                *next += 1;
                item
            }
            // A mapping used as a key takes the key's turn under a name no one can write.
            Some(Level::Map { path, key }) => key.take().unwrap_or_else(|| {
                let odd = join_key(path, "?");
                *key = Some(odd.clone());
                odd
            }),
        }
    }
}
