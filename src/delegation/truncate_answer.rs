//! An answer that is too long for the caller: the beginning goes, the whole of it stays in a file.

use super::orchestrator::Orchestrator;
use super::steps::Call;
use crate::base::{create_private_dir, write_atomic};
use crate::catalog::Agent;

impl Call {
    /// An answer over the limit goes to a file; the caller gets its beginning and the file's name.
    pub(super) fn cut(&mut self, shared: &Orchestrator, agent: &Agent, text: String) -> String {
        let Some(beginning) = beginning(&text, agent.limits.max_output_chars) else {
            return text;
        };
        let all = text.chars().count();
        let shown = beginning.chars().count();
        let folder = shared.settings.data_dir().join("results");
        let file = folder.join(format!("{}.txt", self.run));
        let kept = create_private_dir(&folder).and_then(|()| write_atomic(&file, text.as_bytes()));
        let note = match kept {
            Ok(()) => format!(
                "The answer has {all} characters; these are the first {shown}. All of it is in `{}`.",
                file.display()
            ),
            Err(error) => format!(
                "The answer has {all} characters; these are the first {shown}. The rest could not be kept: {error}."
            ),
        };
        let text = format!("{beginning}\n\n[cut by Adjutant: {note}]");
        self.facts.notes.push(note);
        text
    }
}

/// Where to cut `text` so that at most `most` characters go: at a line's end or a space if one is near, never inside a character.
fn beginning(text: &str, most: usize) -> Option<&str> {
    let (end, _) = text.char_indices().nth(most)?;
    let head = text.get(..end)?;
    // Not further back than a tenth: a file of one long line is still worth reading.
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
    fn what_fits_is_not_cut() {
        assert_eq!(beginning("äöü", 3), None);
    }

    #[test]
    fn a_cut_is_made_at_a_line_or_a_word_and_never_in_a_character() {
        let text = "one two three four five six seven eight nine ten\neleven";
        assert_eq!(beginning(text, 50), Some("one two three four five six seven eight nine ten"));
        assert_eq!(beginning("äöüß", 3), Some("äöü"));
        assert_eq!(beginning(&"x".repeat(100), 40).map(str::len), Some(40));
    }
}
