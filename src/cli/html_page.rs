//! Frame of a self-contained HTML page: no external resources, and a content security policy that allows none.

use maud::{Markup, PreEscaped, html};

use crate::util::{one_line, shorten};

/// Maximum length of one text in characters. Names and reasons come from files, callers and agents.
const MAX_TEXT_CHARS: usize = 600;

/// Text and code of a page.
pub(crate) struct HtmlPage<'a> {
    pub(crate) title: &'a str,
    pub(crate) style: &'static str,
    /// Inline script; a page without one forbids scripts.
    pub(crate) script: Option<&'static str>,
    pub(crate) body: Markup,
}

impl HtmlPage<'_> {
    pub(crate) fn render(self) -> String {
        let mut policy = "default-src 'none'; style-src 'unsafe-inline'".to_owned();
        if self.script.is_some() {
            policy.push_str("; script-src 'unsafe-inline'");
        }
        let page = html! {
            (PreEscaped("<!doctype html>\n"))
            html lang="en" {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(policy);
                title { (page_text(self.title)) }
                style { (PreEscaped(self.style)) }
                (self.body)
                @if let Some(script) = self.script {
                    script { (PreEscaped(script)) }
                }
            }
        };
        page.into_string()
    }
}

/// Returns the text on one line, without control characters, and truncated to 600 characters.
pub(crate) fn page_text(text: &str) -> String {
    one_line(&shorten(text, MAX_TEXT_CHARS))
}
