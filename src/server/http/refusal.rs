//! A no over HTTP: what the client is told, and what the audit log is.

use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// The code of a JSON-RPC error that is this server's own.
const SERVER_ERROR: i64 = -32_000;

/// Why a request was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It calls us by a name that is not ours.
    Host,
    /// A web page that was not let in sent it.
    Origin,
    /// It shows no token.
    NoToken,
    /// Its token is unknown or was revoked.
    WrongToken,
    /// Its token's time is over.
    ExpiredToken,
    /// The session belongs to somebody else.
    ForeignSession,
    /// Its body is larger than we read.
    TooLarge,
    /// Its body did not come.
    TooSlow,
    /// We are going away.
    Stopping,
    /// It has no room for another session.
    TooManySessions,
    /// Its caller asks more often than is allowed; with the milliseconds until it may again.
    TooFast {
        /// How long to wait.
        wait_ms: u64,
    },
}

impl Refusal {
    /// The word for the audit log, where somebody was refused rather than held off.
    pub(super) fn audit_code(&self) -> Option<&'static str> {
        match self {
            Self::Host => Some("FOREIGN_HOST"),
            Self::Origin => Some("FOREIGN_ORIGIN"),
            Self::NoToken => Some("NO_TOKEN"),
            Self::WrongToken => Some("WRONG_TOKEN"),
            Self::ExpiredToken => Some("EXPIRED_TOKEN"),
            Self::ForeignSession => Some("FOREIGN_SESSION"),
            Self::TooManySessions => Some("TOO_MANY_SESSIONS"),
            Self::TooFast { .. } => Some("RATE_LIMITED"),
            Self::TooLarge | Self::TooSlow | Self::Stopping => None,
        }
    }

    /// What is said, on one line.
    pub(super) fn sentence(&self) -> String {
        match self {
            Self::Host => "this name is not one of this server's: call it by its address, or start it with --allow-host NAME".to_owned(),
            Self::Origin => "this page may not call this server: start it with --allow-origin ORIGIN if it should".to_owned(),
            Self::NoToken => "a token is needed: send `Authorization: Bearer TOKEN`; `adjutant token new CALLER` makes one".to_owned(),
            Self::WrongToken => "this token is unknown or was revoked: `adjutant token new CALLER` makes another".to_owned(),
            Self::ExpiredToken => "this token has expired: `adjutant token new CALLER` makes another".to_owned(),
            Self::ForeignSession => "this session belongs to another caller: begin one of your own with `initialize`".to_owned(),
            Self::TooLarge => "the body is larger than the 4 MiB that are read: put the text into a file and name the file instead".to_owned(),
            Self::TooSlow => "the body did not come in time: send it again".to_owned(),
            Self::Stopping => "CANCELLED: Adjutant was told to stop and takes no new calls. Call again when it has been started again.".to_owned(),
            Self::TooManySessions => "TOO_MANY_SESSIONS: this caller has as many sessions as it may, all in use. End one with DELETE, then try again.".to_owned(),
            Self::TooFast { wait_ms } => format!("RATE_LIMITED: this caller asks more often than it may. Try again in {wait_ms} ms."),
        }
    }

    /// The answer to whoever asked with this JSON-RPC id; `None` where there was none to answer to.
    pub(super) fn answer(&self, id: Option<&Value>) -> Response {
        let (true, Some(id)) = (self.is_protocol_error(), id) else {
            return self.clone().into_response();
        };
        let mut error = json!({ "code": SERVER_ERROR, "message": self.sentence() });
        if let (Self::TooFast { wait_ms }, Some(error)) = (self, error.as_object_mut()) {
            error.insert("data".to_owned(), json!({ "retry_after_ms": wait_ms }));
        }
        let body = json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string();
        // 200, as for every JSON-RPC error: clients show the text of the error and not that of the status.
        let mut response = Response::new(Body::from(body));
        set(&mut response, CONTENT_TYPE, "application/json");
        self.add_headers(&mut response);
        response
    }

    /// Whether it says something about the call rather than about the connection.
    fn is_protocol_error(&self) -> bool {
        matches!(self, Self::Stopping | Self::TooManySessions | Self::TooFast { .. })
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Host | Self::Origin | Self::ForeignSession => StatusCode::FORBIDDEN,
            Self::NoToken | Self::WrongToken | Self::ExpiredToken => StatusCode::UNAUTHORIZED,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooManySessions | Self::TooFast { .. } => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    fn add_headers(&self, response: &mut Response) {
        match self {
            Self::NoToken => set(response, WWW_AUTHENTICATE, "Bearer realm=\"adjutant\""),
            Self::WrongToken | Self::ExpiredToken => {
                let challenge = "Bearer realm=\"adjutant\", error=\"invalid_token\"";
                set(response, WWW_AUTHENTICATE, challenge);
            }
            Self::TooFast { wait_ms } => {
                set(response, RETRY_AFTER, &wait_ms.div_ceil(1000).to_string());
            }
            // What is left of the body is not worth reading.
            Self::TooLarge | Self::TooSlow | Self::Stopping => set(response, CONNECTION, "close"),
            Self::Host | Self::Origin | Self::ForeignSession | Self::TooManySessions => {}
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(format!("{}\n", self.sentence())));
        *response.status_mut() = self.status();
        set(&mut response, CONTENT_TYPE, "text/plain; charset=utf-8");
        self.add_headers(&mut response);
        response
    }
}

fn set(response: &mut Response, name: axum::http::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
