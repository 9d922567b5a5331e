//! Glob patterns with `*`, `?`, `[abc]`, `[a-z]` and `[!abc]`; case-sensitive, without escapes.
//!
//! Matching takes at most time proportional to the length of the name times the length of the pattern.

use std::fmt;

/// A compiled glob pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: String,
    /// `None` for a literal name, which is compared as text.
    tokens: Option<Vec<Token>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Literal(char),
    Any,
    Many,
    Class { negated: bool, ranges: Vec<(char, char)> },
}

impl Pattern {
    /// Compiles a pattern. Every text is valid: a `[` without `]` is a literal `[`.
    pub(crate) fn new(text: &str) -> Self {
        let tokens = tokenize(text);
        let literal = tokens.iter().all(|token| matches!(token, Token::Literal(_)));
        Self { text: text.to_owned(), tokens: (!literal).then_some(tokens) }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns true if the pattern has no wildcards.
    pub(crate) fn is_literal(&self) -> bool {
        self.tokens.is_none()
    }

    /// Returns true if the pattern matches the whole of `name`.
    pub(crate) fn matches(&self, name: &str) -> bool {
        match &self.tokens {
            None => self.text == name,
            Some(tokens) => matches_tokens(tokens, name),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Token {
    fn matches_char(&self, c: char) -> bool {
        match self {
            Self::Literal(literal) => *literal == c,
            Self::Any | Self::Many => true,
            Self::Class { negated, ranges } => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&c)) != *negated
            }
        }
    }
}

/// Matches with backtracking to the last `*` only: backtracking to an earlier `*` cannot succeed where the last fails.
fn matches_tokens(tokens: &[Token], name: &str) -> bool {
    let mut rest = name;
    let mut position = 0;
    let mut last_many: Option<(usize, &str)> = None;
    loop {
        let next = rest.chars().next();
        match (tokens.get(position), next) {
            (None, None) => return true,
            (Some(Token::Many), _) => {
                position += 1;
                last_many = Some((position, rest));
                continue;
            }
            (Some(token), Some(c)) if token.matches_char(c) => {
                position += 1;
                rest = skip_char(rest, c);
                continue;
            }
            _ => {}
        }
        let Some((resume, from)) = last_many else { return false };
        let Some(swallowed) = from.chars().next() else { return false };
        rest = skip_char(from, swallowed);
        position = resume;
        last_many = Some((resume, rest));
    }
}

fn skip_char(text: &str, first: char) -> &str {
    text.get(first.len_utf8()..).unwrap_or_default()
}

fn tokenize(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = skip_char(rest, c);
        let token = match c {
            '*' if tokens.last() == Some(&Token::Many) => continue,
            '*' => Token::Many,
            '?' => Token::Any,
            '[' => match parse_class(rest) {
                Some((class, behind)) => {
                    rest = behind;
                    class
                }
                None => Token::Literal('['),
            },
            other => Token::Literal(other),
        };
        tokens.push(token);
    }
    tokens
}

/// Parses the class behind a `[` and returns the rest behind its `]`. A `]` in first position belongs to the class.
fn parse_class(text: &str) -> Option<(Token, &str)> {
    let (negated, body) = match text.strip_prefix('!') {
        Some(body) => (true, body),
        None => (false, text),
    };
    let first = body.chars().next()?.len_utf8();
    let end = first + body.get(first..)?.find(']')?;
    let ranges = parse_ranges(body.get(..end)?);
    Some((Token::Class { negated, ranges }, body.get(end + 1..)?))
}

fn parse_ranges(body: &str) -> Vec<(char, char)> {
    let mut ranges = Vec::new();
    let mut rest = body.chars();
    while let Some(first) = rest.next() {
        let mut ahead = rest.clone();
        match (ahead.next(), ahead.next()) {
            (Some('-'), Some(last)) => {
                ranges.push((first, last));
                rest = ahead;
            }
            _ => ranges.push((first, first)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use proptest::prelude::*;
    use test_case::test_case;

    #[test_case("db", "db", true)]
    #[test_case("db", "DB", false; "case counts")]
    #[test_case("db", "db ", false; "spaces count")]
    #[test_case("*", "", true)]
    #[test_case("?", "", false)]
    #[test_case("", "", true; "an empty pattern fits the empty name")]
    #[test_case("", "x", false; "an empty pattern fits nothing else")]
    #[test_case("*a*b*", "xaxbx", true)]
    #[test_case("*a*b*", "xbxax", false)]
    #[test_case("get_?", "get_é", true)]
    #[test_case("[a-c]x", "bx", true)]
    #[test_case("[a-c]x", "dx", false)]
    #[test_case("[c-a]x", "bx", false; "a range from high to low holds nothing")]
    #[test_case("[!ab]x", "cx", true)]
    #[test_case("[!ab]x", "ax", false)]
    #[test_case("[^a]", "^", true; "a caret is a character like any other")]
    #[test_case("[a-]", "-", true)]
    #[test_case("[]a]", "]", true)]
    #[test_case("[!]a]", "]", false)]
    #[test_case("[!]", "[!]", true; "not closed, negated")]
    #[test_case("[]", "[]", true; "not closed, empty")]
    #[test_case("[get*", "[get_x", true; "not closed")]
    #[test_case("[*]", "*", true; "a star in a class is a star")]
    #[test_case("[*]", "x", false; "and nothing else")]
    #[test_case("get.*", "get_x", false; "no regular expression")]
    #[test_case("a\\*", "a*", false; "a backslash escapes nothing")]
    fn d1_patterns_match_as_documented(pattern: &str, name: &str, fits: bool) {
        assert_eq!(Pattern::new(pattern).matches(name), fits);
    }

    #[test]
    fn patterns_without_wildcards_are_literal() {
        assert!(Pattern::new("[get").is_literal());
        assert!(Pattern::new("a.b-c d").is_literal());
        assert!(!Pattern::new("[g]et").is_literal());
        assert!(!Pattern::new("ge?").is_literal());
    }

    #[test]
    fn matching_is_not_exponential() {
        let started = Instant::now();
        let name = "a".repeat(10_000);
        assert!(!Pattern::new(&("*a".repeat(200) + "b")).matches(&name));
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }

    /// Reference implementation: tries all alternatives recursively.
    fn reference(tokens: &[Token], name: &[char]) -> bool {
        match (tokens, name) {
            ([], name) => name.is_empty(),
            ([Token::Many, rest @ ..], name) => {
                (0..=name.len()).any(|skipped| reference(rest, &name[skipped..]))
            }
            ([token, tokens @ ..], [c, name @ ..]) => {
                token.matches_char(*c) && reference(tokens, name)
            }
            (_, []) => false,
        }
    }

    proptest! {
        #[test]
        fn matches_like_the_reference_implementation(pattern in "[abé*?!\\[\\]-]{0,9}", name in "[abcé\\]\\[!-]{0,9}") {
            let expected = reference(&tokenize(&pattern), &name.chars().collect::<Vec<_>>());
            prop_assert_eq!(Pattern::new(&pattern).matches(&name), expected);
        }

        #[test]
        fn a_literal_pattern_matches_only_itself(name in "[^*?\\[]{0,12}", other in ".{0,12}") {
            prop_assert!(Pattern::new(&name).matches(&name));
            prop_assert_eq!(Pattern::new(&name).matches(&other), name == other);
        }
    }
}
