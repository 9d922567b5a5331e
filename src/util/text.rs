//! Text helpers for messages: similar names, truncation, removal of control characters.

use std::borrow::Cow;

/// Returns at most three candidates similar to `wanted`, best first; empty if none scores 0.75 (Jaro-Winkler).
pub(crate) fn nearest_names<'a>(
    wanted: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Vec<&'a str> {
    // A misspelt argument can be megabytes long; only its first 128 characters are compared.
    let wanted: String = wanted.chars().take(128).collect::<String>().to_lowercase();
    let mut scored: Vec<(f64, &str)> = candidates
        .into_iter()
        .map(|candidate| (similarity(&wanted, &candidate.to_lowercase()), candidate))
        .filter(|(score, _)| *score >= 0.75)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    scored.into_iter().take(3).map(|(_, candidate)| candidate).collect()
}

fn similarity(wanted: &str, candidate: &str) -> f64 {
    let contained = wanted.len() >= 3 && candidate.contains(wanted);
    let alike = strsim::jaro_winkler(wanted, candidate);
    if contained { alike.max(0.9) } else { alike }
}

/// Removes escape sequences, replaces control characters and line breaks by spaces, and collapses white space.
pub(crate) fn one_line(text: &str) -> String {
    if text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return text.to_owned();
    }
    let spaced: String =
        strip_escape_sequences(text).chars().map(|c| if is_control(c) { ' ' } else { c }).collect();
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Truncates to at most `max_chars` characters; `…` is the last one of a truncated text.
pub(crate) fn shorten(text: &str, max_chars: usize) -> String {
    shorten_cow(text, max_chars).into_owned()
}

/// Truncates like [`shorten`] without copying a text that is short enough.
pub(crate) fn shorten_cow(text: &str, max_chars: usize) -> Cow<'_, str> {
    if text.len() <= max_chars || text.chars().nth(max_chars).is_none() {
        return Cow::Borrowed(text);
    }
    let mut short: String = text.chars().take(max_chars.saturating_sub(1)).collect();
    short.push('…');
    Cow::Owned(short)
}

/// Removes escape sequences, and control characters that could move a terminal's cursor or forge a line; tabs and line
/// feeds stay.
pub(crate) fn strip_control_chars(text: &str) -> String {
    let text = strip_escape_sequences(text);
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !is_control(*c)).collect()
}

/// Removes control sequences (ECMA-48 CSI) with their parameters, such as colours and cursor movements.
///
/// Of other escape sequences, only the control characters are removed by the callers. Their text stays visible:
/// otherwise it would be a way to hide a part of a command from the person who reads it.
fn strip_escape_sequences(text: &str) -> Cow<'_, str> {
    const CSI: char = '\u{9b}';
    if !text.contains(['\u{1b}', CSI]) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let mut sequence = rest.clone();
        if c == CSI || (c == '\u{1b}' && sequence.next() == Some('[')) {
            let is_parameter = |c: &char| matches!(c, ' '..='?');
            let end = sequence.find(|c| !is_parameter(c));
            if matches!(end, Some('@'..='~')) {
                rest = sequence;
                continue;
            }
        }
        kept.push(c);
    }
    Cow::Owned(kept)
}

/// Returns true for control characters, line separators and bidirectional formatting characters.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_comes_first() {
        assert_eq!(nearest_names("web-serach", ["github", "web-search"]), ["web-search"]);
        assert_eq!(nearest_names("search", ["github", "web-search"]), ["web-search"]);
        assert!(nearest_names("zzz", ["github", "web-search"]).is_empty());
    }

    #[test]
    fn text_is_truncated_by_characters() {
        assert_eq!(shorten("äöü", 3), "äöü");
        assert_eq!(shorten("äöüß", 3), "äö…");
    }

    #[test]
    fn control_characters_are_removed() {
        assert_eq!(strip_control_chars("a\u{1b}[2Jb\nc\u{9b}1;31md"), "ab\ncd");
        assert_eq!(strip_control_chars("\u{1b}]0;title\u{7}\u{1b}[1\nx"), "]0;title[1\nx");
        assert_eq!(one_line("a\r\nb\u{1b}c"), "a b c");
    }
}
