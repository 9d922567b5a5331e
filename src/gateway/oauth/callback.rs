//! Redirect endpoint on 127.0.0.1, open during a sign-in.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::routing::get;
use reqwest::Url;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::util::{one_line, shorten};

const CALLBACK_PATH: &str = "/callback";

/// Authorization code from the redirect.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct CallbackParams {
    pub(crate) code: String,
    pub(crate) state: String,
    pub(crate) issuer: Option<String>,
}

/// Authorization code, or the error that the server returned.
pub(crate) type CallbackResult = Result<CallbackParams, String>;

/// Listener of the redirect endpoint; closed when dropped.
pub(crate) struct CallbackListener {
    redirect_uri: String,
    expected_state: Arc<OnceLock<String>>,
    arrived: mpsc::Receiver<CallbackResult>,
    server_task: JoinHandle<()>,
}

#[derive(Clone)]
struct CallbackState {
    expected_state: Arc<OnceLock<String>>,
    /// Set by the first redirect: a `state` is accepted once.
    is_used: Arc<AtomicBool>,
    sender: mpsc::Sender<CallbackResult>,
}

impl CallbackListener {
    /// Opens the listener on `port`, or on any free port.
    pub(crate) async fn open(port: Option<u16>) -> Result<Self, String> {
        let address = (Ipv4Addr::LOCALHOST, port.unwrap_or(0));
        let listener = TcpListener::bind(address).await.map_err(|error| {
            format!("port {} for the browser's answer cannot be opened: {error}", address.1)
        })?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let expected = Arc::new(OnceLock::new());
        let (sender, arrived) = mpsc::channel(1);
        let callback_state = CallbackState {
            expected_state: Arc::clone(&expected),
            is_used: Arc::default(),
            sender,
        };
        let router =
            Router::new().route(CALLBACK_PATH, get(handle_callback)).with_state(callback_state);
        let serving = tokio::spawn(async move {
            // Aborted when the listener is dropped.
            let _ = axum::serve(listener, router).await;
        });
        let redirect = format!("http://127.0.0.1:{port}{CALLBACK_PATH}");
        Ok(Self { redirect_uri: redirect, expected_state: expected, arrived, server_task: serving })
    }

    /// Returns the redirect URI.
    pub(crate) fn redirect(&self) -> &str {
        &self.redirect_uri
    }

    /// Accepts only redirects with this `state`.
    pub(crate) fn expect_state(&self, state: &str) {
        let _ = self.expected_state.set(state.to_owned());
    }

    /// Waits for the redirect.
    pub(crate) async fn wait_for_result(&mut self) -> CallbackResult {
        match self.arrived.recv().await {
            Some(arrived) => arrived,
            None => Err("the port for the browser's answer was closed".to_owned()),
        }
    }
}

impl Drop for CallbackListener {
    fn drop(&mut self) {
        self.server_task.abort();
    }
}

/// Handles the redirect. The page is a fixed text, so nothing from the URL is reflected.
async fn handle_callback(
    State(callback_state): State<CallbackState>,
    RawQuery(query): RawQuery,
) -> (StatusCode, &'static str) {
    let refused =
        (StatusCode::BAD_REQUEST, "This answer belongs to no sign-in that is under way.\n");
    let expected = callback_state.expected_state.get().map(String::as_str);
    let Some(arrived) = expected.and_then(|state| parse_query(&query.unwrap_or_default(), state))
    else {
        return refused;
    };
    if callback_state.is_used.swap(true, Ordering::SeqCst) {
        return refused;
    }
    let page = match arrived {
        Ok(_) => "Adjutant has the answer; the terminal says the rest. You can close this page.\n",
        Err(_) => "The sign-in was not granted. You can close this page.\n",
    };
    // The send fails only if the sign-in has ended.
    match callback_state.sender.try_send(arrived) {
        Ok(()) => (StatusCode::OK, page),
        Err(_) => refused,
    }
}

/// Parses the query of a redirect; `None` unless its `state` is the expected one.
pub(crate) fn parse_query(query: &str, expected: &str) -> Option<CallbackResult> {
    let url = Url::parse(&format!("http://127.0.0.1/?{query}")).ok()?;
    let one = |name: &str| {
        let mut values = url.query_pairs().filter(|(key, _)| key == name);
        let first = values.next().map(|(_, value)| value.into_owned());
        // A duplicate parameter indicates manipulation.
        if values.next().is_some() { None } else { first }
    };
    let state = one("state").filter(|state| state == expected)?;
    if let Some(error) = one("error") {
        let more = one("error_description").map(|more| format!(" ({more})")).unwrap_or_default();
        return Some(Err(one_line(&shorten(&format!("{error}{more}"), 300))));
    }
    Some(Ok(CallbackParams { code: one("code")?, state, issuer: one("iss") }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test]
    fn the_code_and_the_issuer_are_parsed() {
        let read =
            parse_query("code=a%2Fb&state=s1&iss=https%3A%2F%2Fi", "s1").unwrap().ok().unwrap();
        assert_eq!((read.code.as_str(), read.issuer.as_deref()), ("a/b", Some("https://i")));
        let denied = parse_query("error=access_denied&error_description=no%0Away&state=s1", "s1");
        assert_eq!(denied.unwrap().err().unwrap(), "access_denied (no way)");
    }

    #[test_case("code=a&state=other"; "foreign")]
    #[test_case("code=a"; "without one")]
    #[test_case("code=a&state=s1&state=s1"; "twice")]
    #[test_case("code=a&code=b&state=s1"; "two codes")]
    #[test_case("error=access_denied&state=other"; "a stranger cannot end it either")]
    fn j5_a_callback_with_another_state_is_ignored(query: &str) {
        assert!(parse_query(query, "s1").is_none());
    }
}
