//! JSON that remembers where everything stands, so that a problem can name its line.
//!
//! Keys are kept in the order they were written, and twice if they were written twice: the reader decides.

/// A value and the line it begins on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinedValue {
    /// Counted from one.
    pub line: u32,
    /// What stands there.
    pub value: Lined,
}

/// What a value is; numbers only by their kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lined {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// Any number.
    Number,
    /// A text, unescaped.
    String(String),
    /// A list.
    Array(Vec<LinedValue>),
    /// An object's members as they were written, duplicates included.
    Object(Vec<LinedMember>),
}

impl Lined {
    /// What it is, for a message: `a list`, `text`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "true or false",
            Self::Number => "a number",
            Self::String(_) => "text",
            Self::Array(_) => "a list",
            Self::Object(_) => "an object",
        }
    }
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinedMember {
    /// The key, unescaped.
    pub key: String,
    /// The line of the key.
    pub line: u32,
    /// Its value.
    pub value: LinedValue,
}

/// Why a text is no JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct NotJson {
    /// Counted from one.
    pub line: u32,
    /// Counted from one.
    pub column: u32,
    /// What was wrong, in a few words.
    pub message: String,
}

/// Reads one JSON value with the lines of all its parts; a byte order mark before it is skipped.
pub fn parse_json_lines(text: &str) -> Result<LinedValue, NotJson> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // serde_json decides what is valid, how deep it may nest, and says what is wrong; the scan below
    // only has to find the places in a text that is known to be sound.
    serde_json::from_str::<serde_json::Value>(text).map_err(|error| not_json(&error))?;
    let mut scan = Scan { text, at: 0, line: 1 };
    scan.value().ok_or_else(|| NotJson {
        line: scan.line,
        column: 1,
        message: "this cannot be read".to_owned(),
    })
}

fn not_json(error: &serde_json::Error) -> NotJson {
    let text = error.to_string();
    let message = text.split(" at line ").next().unwrap_or(&text).to_owned();
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    NotJson { line: small(error.line()), column: small(error.column()), message }
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

impl Scan<'_> {
    fn value(&mut self) -> Option<LinedValue> {
        let next = self.peek()?;
        let line = self.line;
        let value = match next {
            b'{' => self.object()?,
            b'[' => self.array()?,
            b'"' => Lined::String(self.string()?),
            _ => self.scalar(),
        };
        Some(LinedValue { line, value })
    }

    fn object(&mut self) -> Option<Lined> {
        self.at += 1;
        let mut members = Vec::new();
        while self.peek()? != b'}' {
            let line = self.line;
            let key = self.string()?;
            self.peek()?;
            self.at += 1;
            members.push(LinedMember { key, line, value: self.value()? });
            self.skip_comma()?;
        }
        self.at += 1;
        Some(Lined::Object(members))
    }

    fn array(&mut self) -> Option<Lined> {
        self.at += 1;
        let mut items = Vec::new();
        while self.peek()? != b']' {
            items.push(self.value()?);
            self.skip_comma()?;
        }
        self.at += 1;
        Some(Lined::Array(items))
    }

    fn string(&mut self) -> Option<String> {
        let rest = self.text.get(self.at..)?;
        let mut escaped = false;
        let end = rest.bytes().enumerate().skip(1).find_map(|(index, byte)| {
            let closes = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            closes.then_some(index + 1)
        })?;
        self.at += end;
        serde_json::from_str(rest.get(..end)?).ok()
    }

    fn scalar(&mut self) -> Lined {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end = rest.find([',', ']', '}', ' ', '\n', '\r', '\t']).unwrap_or(rest.len());
        self.at += end;
        match rest.get(..end) {
            Some("null") => Lined::Null,
            Some("true") => Lined::Bool(true),
            Some("false") => Lined::Bool(false),
            _ => Lined::Number,
        }
    }

    fn skip_comma(&mut self) -> Option<()> {
        if self.peek()? == b',' {
            self.at += 1;
        }
        Some(())
    }

    /// The next byte that is no white space.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.as_bytes().get(self.at)?;
            match byte {
                b'\n' => self.line += 1,
                b' ' | b'\t' | b'\r' => {}
                _ => return Some(byte),
            }
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(value: &LinedValue) -> &[LinedMember] {
        let Lined::Object(members) = &value.value else { panic!("no object: {value:?}") };
        members
    }

    #[test]
    fn every_part_knows_its_line() {
        let value = parse_json_lines("{\n \"a\\\"\": [1,\n  \"x\\\\\" ],\n\n\"b\":{}}").unwrap();
        let [a, b] = members(&value) else { panic!("two members: {value:?}") };
        assert_eq!((a.key.as_str(), a.line, b.key.as_str(), b.line), ("a\"", 2, "b", 5));
        let Lined::Array(items) = &a.value.value else { panic!("a list") };
        assert_eq!(items[0], LinedValue { line: 2, value: Lined::Number });
        assert_eq!(items[1], LinedValue { line: 3, value: Lined::String("x\\".to_owned()) });
    }

    #[test]
    fn a_key_written_twice_is_seen_twice() {
        let value = parse_json_lines("\u{feff}{\"a\":1,\n\"\\u0061\":true}").unwrap();
        let keys: Vec<_> = members(&value).iter().map(|m| (m.key.as_str(), m.line)).collect();
        assert_eq!(keys, [("a", 1), ("a", 2)]);
    }

    #[test]
    fn what_is_no_json_says_where() {
        let problem = parse_json_lines("{\n\"a\": tru }").unwrap_err();
        assert_eq!((problem.line, problem.message.as_str()), (2, "expected ident"));
        assert!(parse_json_lines(&"[".repeat(100_000)).is_err());
        assert!(parse_json_lines("").is_err());
        assert!(parse_json_lines("{} {}").is_err());
    }
}
