//! The subagents section of the main agent's prompt: what stands between two marks, and nothing else.

/// The line before the section.
pub(super) const BEGIN: &str = "<!-- adjutant:subagents:begin -->";
/// The line after it.
pub(super) const END: &str = "<!-- adjutant:subagents:end -->";

/// Why a section cannot be renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MarksRefused {
    /// One of the two is missing.
    #[error("line {line}: a mark without its other half; the section stands between `{BEGIN}` and `{END}`")]
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

/// `prompt` with `section` between its marks; without marks they are added at the end.
pub(super) fn renew(prompt: &str, section: &str) -> Result<String, MarksRefused> {
    let end_of_line = if prompt.contains("\r\n") { "\r\n" } else { "\n" };
    let body = format!("\n{}\n", section.trim()).replace('\n', end_of_line);
    let Some((head, tail)) = around(prompt)? else {
        let gap = match prompt.trim_end() {
            "" => String::new(),
            text => format!("{text}{end_of_line}{end_of_line}"),
        };
        return Ok(format!("{gap}{BEGIN}{body}{END}{end_of_line}"));
    };
    Ok(format!("{head}{body}{tail}"))
}

/// Whether a prompt has the section at all.
pub(super) fn is_in(prompt: &str) -> bool {
    prompt.contains(BEGIN) || prompt.contains(END)
}

/// What stands before and after the section, each with its mark.
fn around(prompt: &str) -> Result<Option<(&str, &str)>, MarksRefused> {
    let begins: Vec<usize> = places(prompt, BEGIN);
    let ends: Vec<usize> = places(prompt, END);
    let line = |at: usize| prompt.get(..at).unwrap_or_default().matches('\n').count() + 1;
    match (begins.as_slice(), ends.as_slice()) {
        ([], []) => Ok(None),
        ([one], []) | ([], [one]) => Err(MarksRefused::Unpaired { line: line(*one) }),
        ([begin], [end]) if begin < end => {
            Ok(prompt.get(..begin + BEGIN.len()).zip(prompt.get(*end..)))
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

    fn with(section: &str) -> String {
        format!("Before\n{BEGIN}\n{section}\n{END}\nAfter")
    }

    #[test]
    fn only_the_section_changes() {
        assert_eq!(renew(&with("old\nold"), "new\n").unwrap(), with("new"));
        assert_eq!(renew(&with("old").replace('\n', "\r\n"), "a\nb").unwrap(), with("a\nb").replace('\n', "\r\n"));
    }

    #[test]
    fn without_marks_it_goes_to_the_end() {
        assert_eq!(renew("Prompt\n", "new").unwrap(), format!("Prompt\n\n{BEGIN}\nnew\n{END}\n"));
        assert_eq!(renew("", "new").unwrap(), format!("{BEGIN}\nnew\n{END}\n"));
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
        fn renewing_twice_is_renewing_once(before in "[a-z \\n]{0,20}", after in "[a-z \\n]{0,20}", marked: bool, section in "[a-z\\n]{0,20}") {
            let prompt = if marked { format!("{before}{BEGIN}{after}{END}{before}") } else { before };
            let once = renew(&prompt, &section).unwrap();
            prop_assert_eq!(renew(&once, &section).unwrap(), once);
        }
    }
}
