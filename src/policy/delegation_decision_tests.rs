//! Examples and properties of [`evaluate_delegation`] over random callers, lists and identity rules.

use proptest::prelude::*;

use super::super::test_support::{catalog_entry, dev_agent, invalid_entry};
use super::*;
use crate::identity::KnownBy;

const NAMES: &[&str] = &["main", "dev", "reviewer", "re*", "*", "[!a]*", ""];
const SOURCES: &[KnownBy] =
    &[KnownBy::Pipe, KnownBy::Attested, KnownBy::Token, KnownBy::Asserted, KnownBy::Fallback];
const IDENTITY_RULES: &[IdentityRule] = &[IdentityRule::Required, IdentityRule::Optional];

fn entry(allowed_callers: AllowedCallers) -> CatalogEntry {
    catalog_entry(Agent { allowed_callers, ..dev_agent() })
}

fn caller() -> impl Strategy<Value = Caller> {
    (prop::sample::select(NAMES), prop::sample::select(SOURCES))
        .prop_map(|(name, known_by)| Caller::new(name, known_by))
}

fn names() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(prop::sample::select(NAMES).prop_map(str::to_owned), 0..4)
}

fn identity() -> impl Strategy<Value = IdentityRule> {
    prop::sample::select(IDENTITY_RULES)
}

fn is_allowed(entry: &CatalogEntry, caller: &Caller, identity: IdentityRule) -> bool {
    evaluate_delegation(entry, caller, identity).verdict.is_allowed()
}

#[test]
fn a_verdict_names_the_rule_and_says_it_in_one_sentence() {
    let named = entry(AllowedCallers::Named(vec!["main".to_owned(), "reviewer".to_owned()]));
    let say = |entry: &CatalogEntry, name: &str, identity| {
        let told = evaluate_delegation(entry, &Caller::named(name), identity);
        let Verdict { decision, rule, reason } = told.verdict.as_ref();
        format!("{decision}, {rule}: {reason}")
    };
    assert_eq!(
        say(&named, "reviewer", IdentityRule::Optional),
        "allow, `allowed_callers[1]` in agent.md: \
         `reviewer` (as it says itself) may call `dev`; its allowed_callers name it"
    );
    assert_eq!(
        say(&named, "else", IdentityRule::Required),
        "deny, `allowed_callers` in agent.md: \
         `else` (as it says itself) may not call `dev`; its allowed_callers are: main, reviewer"
    );
    assert_eq!(
        say(&entry(AllowedCallers::Anyone), "else", IdentityRule::Optional),
        "allow, `allowed_callers` in agent.md: \
         `else` (as it says itself) may call `dev`; its allowed_callers are: anyone"
    );
    assert_eq!(
        say(&named, "main", IdentityRule::Required),
        "deny, `identity` in defaults.yaml: nothing attests who is calling, \
         and `identity: required` in agents/defaults.yaml refuses that"
    );
    assert_eq!(
        say(&invalid_entry(), "main", IdentityRule::Optional),
        "deny, `unknown-key` in agent.md line 4: \
         the agent `dev` cannot be run: there is no key `alow` (agents/dev/agent.md:4)"
    );
}

proptest! {
    /// Names are compared as they are: no pattern in a caller's name or in the list widens it.
    #[test]
    fn a_caller_that_is_not_listed_is_denied(
        caller in caller(), names in names(), identity in identity(),
    ) {
        let listed = names.contains(&caller.name);
        let allowed = is_allowed(&entry(AllowedCallers::Named(names)), &caller, identity);
        prop_assert!(listed || !allowed);
    }

    #[test]
    fn the_list_of_the_catalog_and_the_verdict_agree(caller in caller(), names in names()) {
        let callers = AllowedCallers::Named(names);
        let listed = callers.allows(&caller.name);
        prop_assert_eq!(listed, is_allowed(&entry(callers), &caller, IdentityRule::Optional));
    }

    #[test]
    fn removing_a_caller_or_requiring_an_identity_allows_nobody_more(
        caller in caller(), names in names(), removed in any::<prop::sample::Index>(), identity in identity(),
    ) {
        let before = entry(AllowedCallers::Named(names.clone()));
        let mut fewer = names;
        if !fewer.is_empty() {
            fewer.remove(removed.index(fewer.len()));
        }
        let after = entry(AllowedCallers::Named(fewer));
        prop_assert!(is_allowed(&before, &caller, identity) || !is_allowed(&after, &caller, identity));
        prop_assert!(
            is_allowed(&before, &caller, IdentityRule::Optional)
                || !is_allowed(&before, &caller, IdentityRule::Required)
        );
    }

    #[test]
    fn an_unverified_caller_is_denied_where_an_identity_is_required(caller in caller(), names in names()) {
        for callers in [AllowedCallers::Anyone, AllowedCallers::Named(names)] {
            let allowed = is_allowed(&entry(callers), &caller, IdentityRule::Required);
            prop_assert!(caller.is_verified() || !allowed);
        }
    }

    #[test]
    fn an_agent_with_errors_takes_calls_from_nobody(caller in caller(), identity in identity()) {
        let told = evaluate_delegation(&invalid_entry(), &caller, identity);
        prop_assert!(!told.verdict.is_allowed());
        prop_assert_eq!(told.decided_by, DelegationRule::ValidFiles);
    }

    #[test]
    fn a_grant_by_name_points_to_the_callers_name(caller in caller(), names in names(), identity in identity()) {
        let told = evaluate_delegation(&entry(AllowedCallers::Named(names.clone())), &caller, identity);
        if told.verdict.is_allowed() {
            let granting = names.iter().position(|name| *name == caller.name).unwrap();
            prop_assert_eq!(told.verdict.rule.path.to_string(), format!("allowed_callers[{granting}]"));
        }
    }
}
