//! Ids as people write them: the id, or a unique prefix or suffix of it.

/// Number of characters of a short id, taken from the end: ids begin with the time.
const SHORT_ID_CHARS: usize = 8;

/// Returns the last 8 characters of an id.
pub fn short_id(id: &str) -> &str {
    let from = id.char_indices().rev().nth(SHORT_ID_CHARS - 1).map_or(0, |(at, _)| at);
    id.get(from..).unwrap_or(id)
}

/// Items whose id a text may mean.
#[derive(Debug, PartialEq, Eq)]
pub enum IdMatch<'a, T> {
    None,
    One(&'a T),
    /// Several ids have this prefix or suffix.
    Ambiguous(Vec<&'a T>),
}

/// Finds the item whose id is `wanted`, or begins or ends with it, with or without hyphens.
pub fn match_id<'a, T>(wanted: &str, items: &'a [T], id: impl Fn(&T) -> String) -> IdMatch<'a, T> {
    let plain = |text: &str| text.replace('-', "").to_ascii_lowercase();
    let wanted = plain(wanted);
    if wanted.is_empty() {
        return IdMatch::None;
    }
    let mut found = Vec::new();
    for item in items {
        let id = plain(&id(item));
        if id == wanted {
            return IdMatch::One(item);
        }
        if id.starts_with(&wanted) || id.ends_with(&wanted) {
            found.push(item);
        }
    }
    match found.as_slice() {
        [] => IdMatch::None,
        [only] => IdMatch::One(only),
        _ => IdMatch::Ambiguous(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_or_suffix_finds_an_id_if_it_is_unique() {
        let ids = ["0195f0a2-0000-7000-8000-00000000aaaa", "0195f0a2-0000-7000-8000-00000000bbbb"];
        let find = |wanted: &str| match_id(wanted, &ids, |id| (*id).to_owned());
        assert_eq!(find("0000aaaa"), IdMatch::One(&ids[0]));
        assert_eq!(find("0195F0A200007000800000000000bbbb"), IdMatch::One(&ids[1]));
        assert_eq!(find("0195f0a2-00"), IdMatch::Ambiguous(vec![&ids[0], &ids[1]]));
        assert_eq!([find("-"), find("cccc")], [IdMatch::None, IdMatch::None]);
        assert_eq!(short_id(ids[0]), "0000aaaa");
        assert_eq!(short_id("äö"), "äö");
    }
}
