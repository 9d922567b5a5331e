//! The subagents section of the main agent's prompt: what stands between two marks, and nothing else.

use crate::catalog::subagents_section::{BEGIN, END};

/// Why a section cannot be renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MarksRefused {
    /// One of the two is missing.
    #[error(
        "line {line}: a mark without its other half; the section stands between `{BEGIN}` and `{END}`"
    )]
    Unpaired {
        /// Of the mark that is there.
        line: usize,
    },
    /// One of the two stands more than once, or they stand in the wrong order.
    #[error("line {line}: each mark stands once, `{BEGIN}` before `{END}`")]
    Disorder {
        /// Of the mark that is too much.
        line: usize,
    },
}

/// `prompt` with `section`, which brings its own marks; where the prompt has none it goes to the end.
pub(super) fn renew(prompt: &str, section: &str) -> Result<String, MarksRefused> {
    let line_end = if prompt.contains("\r\n") { "\r\n" } else { "\n" };
    let section = section.replace('\n', line_end);
    let Some((before, after)) = around(prompt)? else {
        let gap = match prompt.trim_end() {
            "" => String::new(),
            text => format!("{text}{line_end}{line_end}"),
        };
        return Ok(format!("{gap}{section}{line_end}"));
    };
    Ok(format!("{before}{section}{after}"))
}

/// Whether a prompt has the section at all.
pub(super) fn is_in(prompt: &str) -> bool {
    prompt.contains(BEGIN) || prompt.contains(END)
}

/// What stands before and after the section.
fn around(prompt: &str) -> Result<Option<(&str, &str)>, MarksRefused> {
    let begins: Vec<usize> = places(prompt, BEGIN);
    let ends: Vec<usize> = places(prompt, END);
    let line = |at: usize| prompt.get(..at).unwrap_or_default().matches('\n').count() + 1;
    match (begins.as_slice(), ends.as_slice()) {
        ([], []) => Ok(None),
        ([one], []) | ([], [one]) => Err(MarksRefused::Unpaired { line: line(*one) }),
        ([begin], [end]) if begin < end => {
            Ok(prompt.get(..*begin).zip(prompt.get(end + END.len()..)))
        }
        (begins, ends) => {
            let last = begins.iter().chain(ends).max().copied().unwrap_or_default();
            Err(MarksRefused::Disorder { line: line(last) })
        }
    }
}

fn places(text: &str, mark: &str) -> Vec<usize> {
    text.match_indices(mark).map(|(at, _)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn marked(inside: &str) -> String {
        format!("{BEGIN}\n{inside}\n{END}")
    }

    fn with(inside: &str) -> String {
        format!("Before\n{}\nAfter", marked(inside))
    }

    #[test]
    fn only_the_section_changes() {
        assert_eq!(renew(&with("old\nold"), &marked("new")).unwrap(), with("new"));
        let windows = |text: String| text.replace('\n', "\r\n");
        assert_eq!(renew(&windows(with("old")), &marked("a\nb")).unwrap(), windows(with("a\nb")));
    }

    #[test]
    fn without_marks_it_goes_to_the_end() {
        let section = marked("new");
        assert_eq!(renew("Prompt\n", &section).unwrap(), format!("Prompt\n\n{section}\n"));
        assert_eq!(renew("", &section).unwrap(), format!("{section}\n"));
    }

    #[test]
    fn marks_in_disorder_are_refused_at_their_line() {
        let refused = |text: &str| renew(text, "new").unwrap_err();
        assert_eq!(refused(&format!("a\n{BEGIN}\n")), MarksRefused::Unpaired { line: 2 });
        assert_eq!(refused(&format!("a\n\n{END}\n")), MarksRefused::Unpaired { line: 3 });
        assert_eq!(refused(&format!("{END}\n{BEGIN}\n")), MarksRefused::Disorder { line: 2 });
        assert_eq!(refused(&format!("{BEGIN}\n{END}\n{END}")), MarksRefused::Disorder { line: 3 });
    }

    proptest! {
        #[test]
        fn renewing_twice_is_renewing_once(before in "[a-z \\n]{0,20}", after in "[a-z \\n]{0,20}", has_marks: bool, inside in "[a-z\\n]{0,20}") {
            let section = marked(&inside);
            let prompt = if has_marks { format!("{before}{BEGIN}{after}{END}{before}") } else { before };
            let once = renew(&prompt, &section).unwrap();
            prop_assert_eq!(renew(&once, &section).unwrap(), once);
        }
    }
}
