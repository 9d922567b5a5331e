//! Directives of the fake `claude`.
//!
//! ```text
//! At the start (`FAKE_CLAUDE` only)
//!   hang-at-start                 blocks forever before `initialize`
//!   slow-start SECONDS            delays the response to `initialize`
//!   exit-at-start CODE TEXT       prints TEXT on stderr and exits before `initialize` is answered
//!   refuse-flag --NAME            exits like the real CLI if the command line has this unknown option
//!   noise                         prints lines that are not JSON first
//!   ignore-signals                SIGTERM, SIGINT, SIGHUP and SIGQUIT have no effect
//!   leave-grandchild FILE         starts processes that outlive this one; writes their pids to FILE
//!   stray-result                  sends a result without a prompt, after `initialize` is answered
//!   linger                        does not exit when stdin is closed
//! In a turn (`FAKE_CLAUDE` or prompt)
//!   say TEXT                      sends an assistant message with TEXT
//!   result TEXT                   returns TEXT instead of the prompt
//!   report                        returns arguments, names of environment variables, working directory and pid
//!   recall                        returns the earlier prompts of the session
//!   is-error TEXT                 sets `is_error` in a `success` result, as for an API error
//!   subtype NAME                  sets the subtype, `is_error`, and no result text
//!   structured JSON               adds `structured_output`
//!   deny TOOL                     adds a permission denial
//!   wrong-session                 returns the result with the id of another session
//!   stale-result                  sends a second result after the first
//!   late-result TEXT              sends a result before the turn begins
//!   tool NAME                     sends a tool call and its result
//!   tool-begun NAME               sends a tool call without its result
//!   retry                         sends an `api_retry`
//!   ask TOOL JSON                 calls the hook, then requests the permission; returns the decision
//!   hook EVENT JSON               calls the hook of EVENT with this payload
//!   hook-until FILE EVENT JSON    the same, but waits for FILE and not for the response
//!   wait-for-interrupt            waits for an interrupt, then ends the turn as interrupted
//!   sleep SECONDS                 delays the result
//!   hang-mid-turn                 stops reading and writing
//!   torn-line                     writes half a result and exits with 0
//!   no-result                     exits with 0
//!   exit CODE TEXT                prints TEXT on stderr and exits
//!   crash                         dies of SIGKILL
//!   noise                         prints lines that are not JSON
//!   flood-lines COUNT             writes COUNT frames of an unknown type
//!   flood-forever                 writes frames until the pipe is closed
//!   flood-stderr MEGABYTES        writes that much on stderr
//!   long-line MEGABYTES           writes one line of that size that is not JSON
//!   long-result MEGABYTES         returns a result of that size
//!   ignore-signals, leave-grandchild FILE   as above
//! Before any other directive
//!   once FILE DIRECTIVE           only if FILE does not exist; creates FILE with the pid of this process
//! ```

use std::fs::OpenOptions;
use std::io::Write;

pub struct Directive {
    pub name: String,
    /// The rest of the line: arguments of the directive.
    pub argument: String,
}

impl Directive {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
        (!name.is_empty()).then(|| Self { name: name.to_owned(), argument: rest.trim().to_owned() })
    }

    /// Returns the argument as a number.
    pub fn number(&self) -> f64 {
        self.argument.parse().unwrap_or_else(|_| panic!("`{}` needs a number", self.name))
    }
}

/// Removes `once` directives that were executed before, by this or another process.
pub fn without_completed(directives: Vec<Directive>) -> Vec<Directive> {
    directives.into_iter().filter_map(without_completed_once).collect()
}

fn without_completed_once(directive: Directive) -> Option<Directive> {
    if directive.name != "once" {
        return Some(directive);
    }
    let (file, rest) = directive.argument.split_once(' ').expect("`once FILE DIRECTIVE`");
    let mut first = OpenOptions::new().write(true).create_new(true).open(file).ok()?;
    write!(first, "{}", std::process::id()).unwrap();
    Directive::parse(rest)
}

/// Directives in the variable `FAKE_CLAUDE`.
pub fn from_variable() -> Vec<Directive> {
    let text = std::env::var("FAKE_CLAUDE").unwrap_or_default();
    text.split([';', '\n']).filter_map(Directive::parse).collect()
}

/// Directives in the lines `FAKE …` of a prompt.
pub fn from_prompt(prompt: &str) -> Vec<Directive> {
    let told = prompt.lines().filter_map(|line| line.trim().strip_prefix("FAKE "));
    told.filter_map(Directive::parse).collect()
}
