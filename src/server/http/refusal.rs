//! Refused HTTP requests: the response, and the audit entry, rate-limited per code and address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::json;

use crate::audit::AuditEntry;
use crate::gateway::Gateway;
use crate::identity::Caller;
use crate::jsonrpc::{Frame, Id};
use crate::util::Mutex;

/// JSON-RPC error code that is reserved for server-defined errors.
const SERVER_ERROR: i32 = -32_000;

/// Reason for refusing a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HttpRefusal {
    /// The Host is not one of this server's names.
    Host,
    /// The Origin is a web page that is not allowed.
    Origin,
    NoToken,
    /// The token is unknown, revoked or malformed.
    WrongToken,
    ExpiredToken,
    /// The tokens cannot be read, so nobody is let in.
    TokensUnavailable {
        /// Reason without the file's path and content.
        reason: String,
    },
    /// The session belongs to another caller.
    ForeignSession,
    /// The body exceeds 4 MiB.
    TooLarge,
    /// The body did not arrive in time, or its connection is being closed for a new one.
    TooSlow,
    /// The server is shutting down.
    Stopping,
    /// The session limit is reached, and all sessions of the caller are in use.
    TooManySessions,
    /// The caller exceeds its request rate.
    TooFast {
        /// Milliseconds until the next request is accepted.
        wait_ms: u64,
    },
}

impl HttpRefusal {
    /// Returns the code for the audit log; `None` for refusals that are not access decisions.
    pub(crate) fn audit_code(&self) -> Option<&'static str> {
        match self {
            Self::Host => Some("FOREIGN_HOST"),
            Self::Origin => Some("FOREIGN_ORIGIN"),
            Self::NoToken => Some("NO_TOKEN"),
            Self::WrongToken => Some("WRONG_TOKEN"),
            Self::ExpiredToken => Some("EXPIRED_TOKEN"),
            Self::TokensUnavailable { .. } => Some("STORE_UNAVAILABLE"),
            Self::ForeignSession => Some("FOREIGN_SESSION"),
            Self::TooManySessions => Some("TOO_MANY_SESSIONS"),
            Self::TooFast { .. } => Some("RATE_LIMITED"),
            Self::TooLarge | Self::TooSlow | Self::Stopping => None,
        }
    }

    /// Returns the message for the client, on one line.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Host => "this name is not one of this server's: call it by its address, or start it with --allow-host NAME".to_owned(),
            Self::Origin => "this page may not call this server: start it with --allow-origin ORIGIN if it should".to_owned(),
            Self::NoToken => "a token is needed: send `Authorization: Bearer TOKEN`; `adjutant token new CALLER` makes one".to_owned(),
            Self::WrongToken => "this token is unknown or was revoked: `adjutant token new CALLER` makes another".to_owned(),
            Self::ExpiredToken => "this token has expired: `adjutant token new CALLER` makes another".to_owned(),
            Self::TokensUnavailable { reason } => format!("STORE_UNAVAILABLE: `data/tokens.json` cannot be read: {reason}. A person must mend it; `adjutant token list` says more."),
            Self::ForeignSession => "this session belongs to another caller: begin one of your own with `initialize`".to_owned(),
            Self::TooLarge => "the body is larger than the 4 MiB that are read: put the text into a file and name the file instead".to_owned(),
            Self::TooSlow => "the body did not come in time: send it again".to_owned(),
            Self::Stopping => "CANCELLED: Adjutant was told to stop and takes no new calls. Call again when it has been started again.".to_owned(),
            Self::TooManySessions => "TOO_MANY_SESSIONS: this caller has as many sessions as it may, all in use. End one with DELETE, then try again.".to_owned(),
            Self::TooFast { wait_ms } => format!("RATE_LIMITED: this caller asks more often than it may. Try again in {wait_ms} ms."),
        }
    }

    /// Returns the response: a JSON-RPC error if the request has an id and the refusal concerns the call.
    pub(crate) fn to_response(&self, id: Option<&Id>) -> Response {
        let (status, kind, body) = if let Some(id) = id.filter(|_| self.is_protocol_error()) {
            // 200, as for every JSON-RPC error: clients show the message of the error, but not that of a status.
            (StatusCode::OK, "application/json", self.error_frame(id).into_bytes())
        } else {
            let text = format!("{}\n", self.message());
            (self.status(), "text/plain; charset=utf-8", text.into_bytes())
        };
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        set_header(&mut response, CONTENT_TYPE, kind);
        self.add_headers(&mut response);
        response
    }

    fn error_frame(&self, id: &Id) -> Frame {
        let data = match self {
            Self::TooFast { wait_ms } => Some(json!({ "retry_after_ms": wait_ms })),
            _ => None,
        };
        Frame::error(&id.to_string(), SERVER_ERROR, &self.message(), data.as_ref())
    }

    /// Returns true if the refusal concerns the call, not the connection.
    fn is_protocol_error(&self) -> bool {
        matches!(self, Self::Stopping | Self::TooManySessions | Self::TooFast { .. })
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Host | Self::Origin | Self::ForeignSession => StatusCode::FORBIDDEN,
            Self::NoToken | Self::WrongToken | Self::ExpiredToken => StatusCode::UNAUTHORIZED,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Stopping | Self::TokensUnavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooManySessions | Self::TooFast { .. } => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    fn add_headers(&self, response: &mut Response) {
        match self {
            Self::NoToken => set_header(response, WWW_AUTHENTICATE, "Bearer realm=\"adjutant\""),
            Self::WrongToken | Self::ExpiredToken => {
                let challenge = "Bearer realm=\"adjutant\", error=\"invalid_token\"";
                set_header(response, WWW_AUTHENTICATE, challenge);
            }
            Self::TooFast { wait_ms } => {
                set_header(response, RETRY_AFTER, &wait_ms.div_ceil(1000).to_string());
            }
            // The rest of the body is not read.
            Self::TooLarge | Self::TooSlow | Self::Stopping => {
                set_header(response, CONNECTION, "close");
            }
            Self::Host
            | Self::Origin
            | Self::TokensUnavailable { .. }
            | Self::ForeignSession
            | Self::TooManySessions => {}
        }
    }
}

fn set_header(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// Minimum interval between two entries with the same code and address.
///
/// The next entry contains the number of refusals left out.
const REPEAT_INTERVAL: Duration = Duration::from_secs(10);
/// Limit on tracked pairs of code and address; beyond it all addresses of a code are counted together.
const MAX_KINDS: usize = 1_000;

pub(crate) struct RefusalLog {
    gateway: Arc<Gateway>,
    recent: Mutex<HashMap<RefusalKind, RecentRefusals>>,
}

type RefusalKind = (&'static str, Option<IpAddr>);

struct RecentRefusals {
    written_at: Instant,
    left_out: u64,
}

impl RefusalLog {
    pub(crate) fn new(gateway: Arc<Gateway>) -> Self {
        Self { gateway, recent: Mutex::default() }
    }

    /// Writes an audit entry, unless there was one with the same code and address within 10 s.
    pub(crate) fn record(&self, refusal: &HttpRefusal, from: IpAddr, caller: Option<&Caller>) {
        let Some(code) = refusal.audit_code() else { return };
        let Some(left_out) = self.take_left_out((code, Some(from)), Instant::now()) else { return };
        let mut entry = AuditEntry::new("http_request");
        if let Some(caller) = caller {
            entry = entry.with_caller(caller);
        }
        let more = match left_out {
            0 => String::new(),
            more => format!(", and {more} more like it since the last such line"),
        };
        let entry = entry.with_denial(code, format!("{} (from {from}{more})", refusal.message()));
        self.gateway.try_write_audit_entry(entry);
        tracing::warn!(%from, code, "a request over HTTP was refused");
    }

    /// Returns the number of refusals left out since the last entry; `None` if none is due yet.
    fn take_left_out(&self, kind: RefusalKind, at: Instant) -> Option<u64> {
        let mut recent = self.recent.lock();
        if recent.len() >= MAX_KINDS {
            recent.retain(|_, one| at.saturating_duration_since(one.written_at) < REPEAT_INTERVAL);
        }
        let known = recent.contains_key(&kind) || recent.len() < MAX_KINDS;
        let kind = if known { kind } else { (kind.0, None) };
        let Some(one) = recent.get_mut(&kind) else {
            recent.insert(kind, RecentRefusals { written_at: at, left_out: 0 });
            return Some(0);
        };
        if at.saturating_duration_since(one.written_at) < REPEAT_INTERVAL {
            one.left_out += 1;
            return None;
        }
        one.written_at = at;
        Some(std::mem::take(&mut one.left_out))
    }
}
