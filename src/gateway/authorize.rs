//! What the rules have said before: they say the same until they change.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use crate::policy::{Evaluation, GatewayRules, evaluate};

/// Callers name what they like; beyond this the oldest answers go, all at once.
const MOST: usize = 1_024;

/// The answers of one version of the rules.
#[derive(Default)]
pub(super) struct Verdicts {
    hasher: RandomState,
    known: Mutex<HashMap<u64, Verdict>>,
}

struct Verdict {
    agent: String,
    server: String,
    tool: Option<String>,
    evaluation: Arc<Evaluation>,
}

impl Verdicts {
    /// What [`evaluate`] says; `rules` must always be the same.
    pub(super) fn of(
        &self,
        rules: &GatewayRules,
        agent: &str,
        server: &str,
        tool: Option<&str>,
    ) -> Arc<Evaluation> {
        let key = self.hasher.hash_one((agent, server, tool));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(verdict) = known.get(&key)
            && verdict.is_about(agent, server, tool)
        {
            return Arc::clone(&verdict.evaluation);
        }
        let evaluation = Arc::new(evaluate(rules, agent, server, tool));
        if known.len() >= MOST {
            known.clear();
        }
        let (agent, server) = (agent.to_owned(), server.to_owned());
        let tool = tool.map(str::to_owned);
        let verdict = Verdict { agent, server, tool, evaluation: Arc::clone(&evaluation) };
        known.insert(key, verdict);
        evaluation
    }
}

impl Verdict {
    fn is_about(&self, agent: &str, server: &str, tool: Option<&str>) -> bool {
        self.agent == agent && self.server == server && self.tool.as_deref() == tool
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_second_answer_is_the_first_and_as_many_are_kept_as_there_is_room_for() {
        let rules = GatewayRules::deny_all(Path::new("rules.json"));
        let verdicts = Verdicts::default();
        for number in 0..2 * MOST {
            let agent = format!("agent-{number}");
            let asked = |tool| verdicts.of(&rules, &agent, "s", tool);
            assert_eq!(*asked(Some("t")), evaluate(&rules, &agent, "s", Some("t")));
            assert!(Arc::ptr_eq(&asked(Some("t")), &asked(Some("t"))));
            assert_eq!(*asked(None), evaluate(&rules, &agent, "s", None));
        }
        assert!(verdicts.known.lock().unwrap().len() <= MOST);
    }
}
