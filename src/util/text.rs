//! Text on its way to a person: nearest names, short forms, nothing that moves a cursor.

use std::borrow::Cow;

/// The candidates most like `wanted`, best first, at most three; empty if none is close.
pub fn nearest<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    // A misspelt argument can be megabytes long; only its beginning can resemble a name.
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

/// `text` on one line: control characters and line breaks become spaces.
pub fn one_line(text: &str) -> String {
    if text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return text.to_owned();
    }
    let spaced: String = text.chars().map(|c| if is_control(c) { ' ' } else { c }).collect();
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `text` cut to at most `most` characters, with `…` as the last where something was cut.
pub fn shorten(text: &str, most: usize) -> String {
    shortened(text, most).into_owned()
}

/// The same, where most texts are short enough and need not be copied.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most || text.chars().nth(most).is_none() {
        return Cow::Borrowed(text);
    }
    let mut short: String = text.chars().take(most.saturating_sub(1)).collect();
    short.push('…');
    Cow::Owned(short)
}

/// `text` without what could move a terminal's cursor or forge a line; tabs and line feeds stay.
pub fn without_controls(text: &str) -> String {
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !is_control(*c)).collect()
}

/// Control characters, and the marks that turn the direction of text around.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_comes_first() {
        assert_eq!(nearest("web-serach", ["github", "web-search"]), ["web-search"]);
        assert_eq!(nearest("search", ["github", "web-search"]), ["web-search"]);
        assert!(nearest("zzz", ["github", "web-search"]).is_empty());
    }

    #[test]
    fn text_is_cut_by_characters() {
        assert_eq!(shorten("äöü", 3), "äöü");
        assert_eq!(shorten("äöüß", 3), "äö…");
    }

    #[test]
    fn escapes_are_removed() {
        assert_eq!(without_controls("a\u{1b}[2Jb\nc"), "a[2Jb\nc");
        assert_eq!(one_line("a\r\nb\u{1b}c"), "a b c");
    }
}
