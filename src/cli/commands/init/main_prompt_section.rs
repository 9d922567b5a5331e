//! Replaces the subagents section of the main prompt: the text between two marks.

use crate::catalog::{SECTION_BEGIN, SECTION_END};

/// Error in the marks of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SectionError {
    /// One of the two marks is missing.
    #[error(
        "line {line}: a mark without its other half; the section stands between `{SECTION_BEGIN}` and `{SECTION_END}`"
    )]
    Unpaired {
        /// Line of the existing mark.
        line: usize,
    },
    /// A mark is duplicated, or the marks are in the wrong order.
    #[error("line {line}: each mark stands once, `{SECTION_BEGIN}` before `{SECTION_END}`")]
    Disorder {
        /// Line of the last mark.
        line: usize,
    },
}

/// Replaces the section of `prompt` by `section`, which includes the marks.
///
/// A prompt without marks gets the section at its end.
pub(crate) fn replace_section(prompt: &str, section: &str) -> Result<String, SectionError> {
    let line_end = if prompt.contains("\r\n") { "\r\n" } else { "\n" };
    let section = section.replace('\n', line_end);
    let Some((before, after)) = split_at_section(prompt)? else {
        let gap = match prompt.trim_end() {
            "" => String::new(),
            text => format!("{text}{line_end}{line_end}"),
        };
        return Ok(format!("{gap}{section}{line_end}"));
    };
    Ok(format!("{before}{section}{after}"))
}

/// Returns true if the prompt contains at least one mark.
pub(crate) fn has_mark(prompt: &str) -> bool {
    prompt.contains(SECTION_BEGIN) || prompt.contains(SECTION_END)
}

/// Returns the text before and after the section, or `None` if there are no marks.
fn split_at_section(prompt: &str) -> Result<Option<(&str, &str)>, SectionError> {
    let begins: Vec<usize> = find_all(prompt, SECTION_BEGIN);
    let ends: Vec<usize> = find_all(prompt, SECTION_END);
    let line = |at: usize| prompt.get(..at).unwrap_or_default().matches('\n').count() + 1;
    match (begins.as_slice(), ends.as_slice()) {
        ([], []) => Ok(None),
        ([one], []) | ([], [one]) => Err(SectionError::Unpaired { line: line(*one) }),
        ([begin], [end]) if begin < end => {
            Ok(prompt.get(..*begin).zip(prompt.get(end + SECTION_END.len()..)))
        }
        (begins, ends) => {
            let last = begins.iter().chain(ends).max().copied().unwrap_or_default();
            Err(SectionError::Disorder { line: line(last) })
        }
    }
}

fn find_all(text: &str, mark: &str) -> Vec<usize> {
    text.match_indices(mark).map(|(at, _)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn marked(inside: &str) -> String {
        format!("{SECTION_BEGIN}\n{inside}\n{SECTION_END}")
    }

    fn with(inside: &str) -> String {
        format!("Before\n{}\nAfter", marked(inside))
    }

    #[test]
    fn only_the_section_is_replaced() {
        assert_eq!(replace_section(&with("old\nold"), &marked("new")).unwrap(), with("new"));
        let windows = |text: String| text.replace('\n', "\r\n");
        assert_eq!(
            replace_section(&windows(with("old")), &marked("a\nb")).unwrap(),
            windows(with("a\nb"))
        );
    }

    #[test]
    fn without_marks_the_section_is_appended() {
        let section = marked("new");
        assert_eq!(
            replace_section("Prompt\n", &section).unwrap(),
            format!("Prompt\n\n{section}\n")
        );
        assert_eq!(replace_section("", &section).unwrap(), format!("{section}\n"));
    }

    #[test]
    fn invalid_marks_are_rejected_with_their_line() {
        let refused = |text: &str| replace_section(text, "new").unwrap_err();
        assert_eq!(refused(&format!("a\n{SECTION_BEGIN}\n")), SectionError::Unpaired { line: 2 });
        assert_eq!(refused(&format!("a\n\n{SECTION_END}\n")), SectionError::Unpaired { line: 3 });
        assert_eq!(
            refused(&format!("{SECTION_END}\n{SECTION_BEGIN}\n")),
            SectionError::Disorder { line: 2 }
        );
        assert_eq!(
            refused(&format!("{SECTION_BEGIN}\n{SECTION_END}\n{SECTION_END}")),
            SectionError::Disorder { line: 3 }
        );
    }

    proptest! {
        #[test]
        fn renewing_twice_is_renewing_once(before in "[a-z \\n]{0,20}", after in "[a-z \\n]{0,20}", has_marks: bool, inside in "[a-z\\n]{0,20}") {
            let section = marked(&inside);
            let prompt = if has_marks { format!("{before}{SECTION_BEGIN}{after}{SECTION_END}{before}") } else { before };
            let once = replace_section(&prompt, &section).unwrap();
            prop_assert_eq!(replace_section(&once, &section).unwrap(), once);
        }
    }
}
