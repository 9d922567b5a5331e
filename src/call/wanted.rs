//! What an answer must be: text, or a JSON value that fits a schema.

use serde_json::Value;

use crate::catalog::{Agent, OutputFormat};
use crate::claude::ResultFrame;
use crate::outcome::{Answer, Code, Failure, OutputProblem, Validator};

/// What is wanted of one run, and how often it may still be asked again.
pub(super) struct Wanted {
    validator: Option<Validator>,
    retries: u32,
}

impl Wanted {
    /// As the agent's file has it.
    pub(super) fn of(agent: &Agent) -> Result<Self, Failure> {
        let validator = match (&agent.output.schema, agent.output.format) {
            (Some(schema), _) => Some(Validator::compile(schema).map_err(|error| {
                Failure::new(Code::AgentInvalid, error.to_string(), "run `adjutant check`")
            })?),
            (None, OutputFormat::Json) => Some(Validator::any_json()),
            (None, OutputFormat::Text) => None,
        };
        Ok(Self { validator, retries: agent.output.retries })
    }

    /// What to tell the agent about answers that do not fit, while it may still try again.
    pub(super) fn objections(&self) -> impl FnMut(&ResultFrame) -> Option<String> {
        let mut retries = self.retries;
        move |result| {
            let problem = self.problem(result).filter(|_| result.is_success())?;
            retries = retries.checked_sub(1)?;
            Some(problem)
        }
    }

    /// The answer, if it is what was asked for.
    pub(super) fn answer(&self, agent: &Agent, result: &ResultFrame) -> Result<Answer, Failure> {
        let text = result.result.clone().unwrap_or_default();
        let Some(validator) = &self.validator else { return Ok(Answer { text, output: None }) };
        match validator.judge(&text, result.structured_output.as_ref()) {
            Ok(output) => Ok(Answer { text, output: Some(output) }),
            Err(problem) => Err(unfit(agent, &problem, text)),
        }
    }

    /// Why there is no answer where the CLI itself gave the asking up: what was wrong with the last one.
    pub(super) fn given_up(&self, agent: &Agent, last: Option<&Value>) -> Failure {
        let text = last.map_or(String::new(), Value::to_string);
        let judged = self.validator.as_ref().map(|validator| validator.judge(&text, last));
        if let Some(Err(problem)) = judged {
            return unfit(agent, &problem, text);
        }
        // The CLI asks for less than we do; it should not come to this.
        let message = format!("`{}` gave no answer that claude takes", agent.name);
        Failure::new(Code::OutputInvalid, message, advice(agent)).with_partial(text)
    }

    fn problem(&self, result: &ResultFrame) -> Option<String> {
        let text = result.result.as_deref().unwrap_or_default();
        let judged = self.validator.as_ref()?.judge(text, result.structured_output.as_ref());
        judged.err().map(|problem| problem.feedback())
    }
}

fn unfit(agent: &Agent, problem: &OutputProblem, text: String) -> Failure {
    let message =
        format!("the answer of `{}` is not what its file asks for: {problem}", agent.name);
    Failure::new(Code::OutputInvalid, message, advice(agent))
        .with_partial(text)
        .with_errors(problem.differences())
}

fn advice(agent: &Agent) -> String {
    format!("look at `output_schema` and the prompt in {}", agent.file.display())
}
