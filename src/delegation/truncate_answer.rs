//! Truncation of answers above `max_output_chars`; the full text is kept in `data/results/`.

use super::deliver::ReportDraft;
use super::orchestrator::Orchestrator;
use super::pipeline::Run;
use crate::catalog::Agent;
use crate::events::ResultFiles;

/// Truncates an answer above the limit and writes all of it to a file.
///
/// The returned text and a note name the file.
pub(crate) fn truncate_answer(
    services: &Orchestrator,
    run: &Run,
    agent: &Agent,
    text: String,
    draft: &mut ReportDraft,
) -> String {
    let Some(beginning) = truncated(&text, agent.limits.max_output_chars) else {
        return text;
    };
    let all = text.chars().count();
    let shown = beginning.chars().count();
    let results = ResultFiles::new(&services.settings.data_dir());
    let note = match results.write(run.id, &text) {
        Ok(file) => format!(
            "The answer has {all} characters; these are the first {shown}. All of it is in `{}`.",
            file.display()
        ),
        Err(error) => format!(
            "The answer has {all} characters; these are the first {shown}. The rest could not be kept: {error}."
        ),
    };
    let text = format!("{beginning}\n\n[cut by Adjutant: {note}]");
    draft.notes.push(note);
    text
}

/// Returns the first `most` characters of `text`, cut at a line break or space if one is in the last
/// tenth.
///
/// `None` if the text is short enough.
fn truncated(text: &str, most: usize) -> Option<&str> {
    let (end, _) = text.char_indices().nth(most)?;
    let head = text.get(..end)?;
    // At most a tenth is given up: of one long line, most is shown.
    let floor = end - end / 10;
    let at = head
        .rfind('\n')
        .filter(|at| *at >= floor)
        .or_else(|| head.rfind(' ').filter(|at| *at >= floor));
    Some(head.get(..at.unwrap_or(end)).unwrap_or(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_answers_are_not_truncated() {
        assert_eq!(truncated("äöü", 3), None);
    }

    #[test]
    fn answers_are_truncated_at_a_line_or_word_and_never_inside_a_character() {
        let text = "one two three four five six seven eight nine ten\neleven";
        assert_eq!(truncated(text, 50), Some("one two three four five six seven eight nine ten"));
        assert_eq!(truncated("äöüß", 3), Some("äöü"));
        assert_eq!(truncated(&"x".repeat(100), 40).map(str::len), Some(40));
    }
}
