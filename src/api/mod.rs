//! JSON objects of the output contract: `--json` of commands, MCP results, lines of the event log and the audit log.
//!
//! Pure data. The conversion from a domain type is where that type is. `schema.rs` generates `docs/schema/output/` from
//! these types; `docs/reference/json.md` describes them. An optional member without a value is absent, never `null`.

mod agent;
mod audit_entry;
mod common;
mod cost;
mod decision;
mod error;
mod event;
mod extension;
mod finding;
mod ids;
mod plan;
mod report;
mod run;
#[cfg(test)]
mod schema;
mod server;
mod session;
mod token;

pub use agent::{AgentObject, DefinitionState, SettingObject, SettingOrigin};
pub use audit_entry::{AuditEntryObject, AuditFault, AuditVerification, RemovedLines};
pub use common::{Caller, KnownBy, Usd, UtcTime, round_usd};
pub use cost::{AgentStatsObject, CostObject};
pub use decision::{DecisionKind, DecisionObject, DecisionWord};
pub use error::{ErrorObject, ErrorReport, MismatchObject};
pub(crate) use event::EVENT_MEMBERS;
pub use extension::{ExtensionAgentObject, ExtensionObject, ExtensionServerObject};
pub use finding::{CheckObject, FindingObject, ReportLevel};
pub use ids::{IdMatch, match_id, short_id};
pub use plan::{PlanArgument, PlanObject, PlanSandboxPart, PlanServer, PlanVariable};
pub use report::{DenialObject, ReportObject, ReportsObject};
pub use run::{RunObject, RunState, StepObject, TokenCounts};
pub use server::{ServerObject, SignInObject};
pub use session::{MessageObject, SessionHolder, SessionObject};
pub use token::TokenObject;
