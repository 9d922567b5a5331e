//! The directives.
//!
//! ```text
//! At the start (FAKE_CLAUDE only)
//!   hang-at-start                 never answers anything
//!   slow-start SECONDS            answers `initialize` late
//!   exit-at-start CODE TEXT       prints TEXT on stderr and ends before `initialize` is answered
//!   refuse-flag --NAME            ends as the real one does with an option it does not know
//!   noise                         prints lines that are no JSON first
//!   ignore-signals                SIGTERM, SIGINT, SIGHUP and SIGQUIT do nothing
//!   leave-grandchild FILE         starts processes that outlive it; their pids go to FILE
//!   stray-result                  a result that nobody asked for, right after `initialize` is answered
//! In a turn (either way)
//!   say TEXT                      an assistant's text
//!   result TEXT                   the result instead of the prompt
//!   report                        the result is its arguments, the names of its environment, its folder
//!   recall                        the result is the prompts of this session so far
//!   is-error TEXT                 `success` with `is_error: true`, as an API error looks
//!   subtype NAME                  another subtype, without a result
//!   structured JSON               a `structured_output`
//!   deny TOOL                     a permission denial
//!   wrong-session                 a result of another session
//!   stale-result                  a second result after the first
//!   late-result TEXT              a result of an earlier turn, before this one begins
//!   tool NAME                     a tool is called and gives its result
//!   tool-begun NAME               a tool is called
//!   retry                         an `api_retry`
//!   ask TOOL JSON                 asks the hook and for approval; the result is the verdict
//!   hook EVENT JSON               tells the hook of that event with this payload
//!   wait-for-interrupt            waits for an interrupt, and ends as one does
//!   sleep SECONDS                 a late result
//!   hang-mid-turn                 reads and writes nothing any more
//!   torn-line                     half a result, and the end
//!   no-result                     the end, with code 0
//!   exit CODE TEXT                TEXT on stderr, and the end
//!   crash                         dies of SIGKILL
//!   noise                         lines that are no JSON
//!   flood-lines COUNT             so many frames of no known type
//!   flood-forever                 output without end, as fast as the pipe takes it
//!   flood-stderr MEGABYTES        so much on stderr
//!   long-line MEGABYTES           one line that is no JSON
//!   long-result MEGABYTES         a result of that size
//!   ignore-signals, leave-grandchild FILE   as above
//! Before any of them
//!   once FILE DIRECTIVE           only where FILE is not there yet; it gets the pid of the process that did it
//! ```

use std::fs::OpenOptions;
use std::io::Write;

/// One thing to do.
pub struct Directive {
    /// What.
    pub name: String,
    /// With what.
    pub rest: String,
}

impl Directive {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
        (!name.is_empty()).then(|| Self { name: name.to_owned(), rest: rest.trim().to_owned() })
    }

    /// The number that it is about.
    pub fn number(&self) -> f64 {
        self.rest.parse().unwrap_or_else(|_| panic!("`{}` needs a number", self.name))
    }
}

/// Leaves out what was to be done once and was done; the others remain.
pub fn due(directives: Vec<Directive>) -> Vec<Directive> {
    directives.into_iter().filter_map(due_once).collect()
}

fn due_once(directive: Directive) -> Option<Directive> {
    if directive.name != "once" {
        return Some(directive);
    }
    let (file, rest) = directive.rest.split_once(' ').expect("`once FILE DIRECTIVE`");
    let mut first = OpenOptions::new().write(true).create_new(true).open(file).ok()?;
    write!(first, "{}", std::process::id()).unwrap();
    Directive::parse(rest)
}

/// What `FAKE_CLAUDE` says.
pub fn from_variable() -> Vec<Directive> {
    let text = std::env::var("FAKE_CLAUDE").unwrap_or_default();
    text.split([';', '\n']).filter_map(Directive::parse).collect()
}

/// What the lines `FAKE …` of a prompt say.
pub fn from_prompt(prompt: &str) -> Vec<Directive> {
    let told = prompt.lines().filter_map(|line| line.trim().strip_prefix("FAKE "));
    told.filter_map(Directive::parse).collect()
}
