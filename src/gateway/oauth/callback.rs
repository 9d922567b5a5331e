//! The address that the browser comes back to: a port on this machine, open while a sign-in is under way.

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

use crate::base::{one_line, shorten};

const PATH: &str = "/callback";

/// What the server said to the browser.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    pub(super) code: String,
    pub(super) state: String,
    pub(super) issuer: Option<String>,
}

/// An answer, or what the server said instead of one.
pub(super) type Arrived = Result<Answer, String>;

/// The open port.
pub(super) struct Callback {
    redirect: String,
    expected: Arc<OnceLock<String>>,
    arrived: mpsc::Receiver<Arrived>,
    serving: JoinHandle<()>,
}

#[derive(Clone)]
struct Desk {
    expected: Arc<OnceLock<String>>,
    /// Set by the first answer: a `state` is good for one.
    answered: Arc<AtomicBool>,
    sender: mpsc::Sender<Arrived>,
}

impl Callback {
    /// Opens the port; any free one unless `port` says which.
    pub(super) async fn open(port: Option<u16>) -> Result<Self, String> {
        let address = (Ipv4Addr::LOCALHOST, port.unwrap_or(0));
        let listener = TcpListener::bind(address).await.map_err(|error| {
            format!("port {} for the browser's answer cannot be opened: {error}", address.1)
        })?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let expected = Arc::new(OnceLock::new());
        let (sender, arrived) = mpsc::channel(1);
        let desk = Desk { expected: Arc::clone(&expected), answered: Arc::default(), sender };
        let router = Router::new().route(PATH, get(receive)).with_state(desk);
        let serving = tokio::spawn(async move {
            // Ends when the sign-in does.
            let _ = axum::serve(listener, router).await;
        });
        let redirect = format!("http://127.0.0.1:{port}{PATH}");
        Ok(Self { redirect, expected, arrived, serving })
    }

    /// Where the browser is sent.
    pub(super) fn redirect(&self) -> &str {
        &self.redirect
    }

    /// Takes only answers that carry this `state`.
    pub(super) fn expect(&self, state: &str) {
        let _ = self.expected.set(state.to_owned());
    }

    /// Waits for the browser.
    pub(super) async fn arrived(&mut self) -> Arrived {
        match self.arrived.recv().await {
            Some(arrived) => arrived,
            None => Err("the port for the browser's answer was closed".to_owned()),
        }
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The words are fixed: nothing of what a stranger put into the address comes back in the page.
async fn receive(
    State(desk): State<Desk>,
    RawQuery(query): RawQuery,
) -> (StatusCode, &'static str) {
    let refused =
        (StatusCode::BAD_REQUEST, "This answer belongs to no sign-in that is under way.\n");
    let expected = desk.expected.get().map(String::as_str);
    let Some(arrived) = expected.and_then(|state| read_query(&query.unwrap_or_default(), state))
    else {
        return refused;
    };
    if desk.answered.swap(true, Ordering::SeqCst) {
        return refused;
    }
    let page = match arrived {
        Ok(_) => "Adjutant has the answer; the terminal says the rest. You can close this page.\n",
        Err(_) => "The sign-in was not granted. You can close this page.\n",
    };
    // Nobody waits any more only where the sign-in is over.
    match desk.sender.try_send(arrived) {
        Ok(()) => (StatusCode::OK, page),
        Err(_) => refused,
    }
}

/// Reads what came back; `None` where it is not the answer to the question with this `state`.
pub(super) fn read_query(query: &str, expected: &str) -> Option<Arrived> {
    let url = Url::parse(&format!("http://127.0.0.1/?{query}")).ok()?;
    let one = |name: &str| {
        let mut values = url.query_pairs().filter(|(key, _)| key == name);
        let first = values.next().map(|(_, value)| value.into_owned());
        // Twice the same name: somebody has tampered with it.
        if values.next().is_some() { None } else { first }
    };
    let state = one("state").filter(|state| state == expected)?;
    if let Some(error) = one("error") {
        let more = one("error_description").map(|more| format!(" ({more})")).unwrap_or_default();
        return Some(Err(one_line(&shorten(&format!("{error}{more}"), 300))));
    }
    Some(Ok(Answer { code: one("code")?, state, issuer: one("iss") }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test]
    fn an_answer_is_read_with_its_issuer() {
        let read =
            read_query("code=a%2Fb&state=s1&iss=https%3A%2F%2Fi", "s1").unwrap().ok().unwrap();
        assert_eq!((read.code.as_str(), read.issuer.as_deref()), ("a/b", Some("https://i")));
        let denied = read_query("error=access_denied&error_description=no%0Away&state=s1", "s1");
        assert_eq!(denied.unwrap().err().unwrap(), "access_denied (no way)");
    }

    #[test_case("code=a&state=other"; "foreign")]
    #[test_case("code=a"; "without one")]
    #[test_case("code=a&state=s1&state=s1"; "twice")]
    #[test_case("code=a&code=b&state=s1"; "two codes")]
    #[test_case("error=access_denied&state=other"; "a stranger cannot end it either")]
    fn j5_a_foreign_state_is_no_answer(query: &str) {
        assert!(read_query(query, "s1").is_none());
    }
}
