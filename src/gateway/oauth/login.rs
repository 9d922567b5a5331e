//! One sign-in by a person, from the server's refusal to the token in its drawer.

use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use reqwest::{StatusCode, Url};
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, AuthorizationMetadataSource,
    InMemoryCredentialStore, OAuthClientConfig,
};
use serde_json::json;
use tokio::time::timeout;

pub use super::callback::Answer;

use super::super::{connection, network};
use super::callback::{Callback, read_query};
use super::endpoints::check_metadata;
use super::failure::SignInFailed;
use super::keeper::{manager, record_of};
use super::target::SignInTarget;
use crate::base::{one_line, shorten};
use crate::catalog::Dialect;

/// The name that people see where they are asked.
const CLIENT_NAME: &str = "Adjutant";
/// For everything that happens before a person is asked.
const PATIENCE: Duration = Duration::from_mins(1);

/// A sign-in under way.
pub struct Attempt<'a> {
    target: &'a SignInTarget,
    manager: AuthorizationManager,
    store: InMemoryCredentialStore,
    client_secret: Option<String>,
    callback: Callback,
    address: String,
    state: String,
}

impl<'a> Attempt<'a> {
    /// Asks the server how to sign in, and judges what it says. `scopes` are asked for besides.
    pub async fn begin(target: &'a SignInTarget, scopes: &[String]) -> Result<Self, SignInFailed> {
        let beginning = timeout(PATIENCE, Self::prepare(target, scopes));
        match beginning.await {
            Ok(begun) => begun,
            Err(_) => Err(failed(target, "it takes too long to say how to sign in")),
        }
    }

    async fn prepare(target: &'a SignInTarget, scopes: &[String]) -> Result<Self, SignInFailed> {
        let challenge = ask(target).await?;
        let store = InMemoryCredentialStore::new();
        let mut manager = manager(target).await.map_err(|error| told(target, &error))?;
        manager.set_credential_store(store.clone());
        let metadata = discover(target, &manager, &challenge).await?;
        manager.set_metadata(metadata.clone());
        let callback = Callback::open(target.settings.redirect_port)
            .await
            .map_err(|reason| failed(target, &reason))?;
        let scopes = wanted_scopes(target, &manager, &metadata, scopes).await;
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let client_secret = introduce(target, &mut manager, &metadata, &callback, &scopes).await?;
        let address =
            manager.get_authorization_url(&scopes).await.map_err(|error| told(target, &error))?;
        let state = state_of(&address).ok_or_else(|| failed(target, "no address was made"))?;
        callback.expect(&state);
        Ok(Self { target, manager, store, client_secret, callback, address, state })
    }

    /// The page to open: `http` or `https`, whatever the server says.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Waits until the browser comes back.
    pub async fn answer(&mut self) -> Result<Answer, SignInFailed> {
        let denied = |reason| SignInFailed::Denied { server: self.target.server.clone(), reason };
        self.callback.arrived().await.map_err(denied)
    }

    /// Reads what a person copied from the browser: the whole address, or the code alone.
    pub fn read_pasted(&self, text: &str) -> Result<Answer, SignInFailed> {
        let refused = |reason: &str| SignInFailed::Refused {
            server: self.target.server.clone(),
            reason: reason.to_owned(),
        };
        let text = text.trim();
        if !text.contains('=') {
            // The code alone: it is still bound to this very attempt by its PKCE verifier.
            let plain = !text.is_empty() && !text.contains(char::is_whitespace);
            let answer = Answer { code: text.to_owned(), state: self.state.clone(), issuer: None };
            return plain.then_some(answer).ok_or_else(|| refused("that is no code"));
        }
        let query = text.split_once('?').map_or(text, |(_, query)| query);
        let query = query.split('#').next().unwrap_or(query);
        match read_query(query, &self.state) {
            None => Err(refused("that answer belongs to another sign-in")),
            Some(Ok(answer)) => Ok(answer),
            Some(Err(reason)) => {
                Err(SignInFailed::Denied { server: self.target.server.clone(), reason })
            }
        }
    }

    /// Trades the answer for a token and keeps it.
    pub async fn finish(self, answer: Answer) -> Result<(), SignInFailed> {
        let target = self.target;
        let issuer = answer.issuer.as_deref();
        let trading =
            self.manager.exchange_code_for_token_with_issuer(&answer.code, &answer.state, issuer);
        trading.await.map_err(|error| told(target, &error))?;
        let (record, secrets) = record_of(target, &self.store, self.client_secret)
            .await
            .map_err(|reason| failed(target, &reason))?;
        let store = |reason| SignInFailed::Store { reason };
        let _lock = target.drawer.lock().await.map_err(store)?;
        target.drawer.write(record, &secrets).await.map_err(store)
    }
}

/// The first words to the server: whether it asks for a sign-in, and with which challenge.
enum Challenge {
    /// It does; what it says with that, if anything.
    Asked(Option<String>),
    /// It let us in as we are.
    NotAsked,
}

async fn ask(target: &SignInTarget) -> Result<Challenge, SignInFailed> {
    let problem = |reason: &str| failed(target, reason);
    let client = network::http_client().map_err(|reason| problem(&reason))?;
    let headers = network::headers(&target.network).map_err(|reason| problem(&reason))?;
    let request = match target.network.dialect {
        Dialect::Sse => client.get(target.url.clone()).header(ACCEPT, "text/event-stream"),
        Dialect::Streamable => client
            .post(target.url.clone())
            .header(ACCEPT, "application/json, text/event-stream")
            .header(CONTENT_TYPE, "application/json")
            .body(introduction()),
    };
    let sent = request.headers(headers.into_iter().collect()).send().await;
    let response = sent.map_err(|error| {
        let text = connection::chain(&error.without_url());
        problem(&format!("the server cannot be reached: {text}"))
    })?;
    if response.status() != StatusCode::UNAUTHORIZED {
        return Ok(Challenge::NotAsked);
    }
    let said = response.headers().get_all(WWW_AUTHENTICATE).iter();
    let said = said.filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(", ");
    Ok(Challenge::Asked((!said.is_empty()).then_some(said)))
}

fn introduction() -> String {
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "adjutant", "version": env!("CARGO_PKG_VERSION") },
    });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string()
}

async fn discover(
    target: &SignInTarget,
    manager: &AuthorizationManager,
    challenge: &Challenge,
) -> Result<AuthorizationMetadata, SignInFailed> {
    let said = match challenge {
        Challenge::Asked(said) => said.as_deref(),
        Challenge::NotAsked => None,
    };
    let found = manager.resolve_metadata_from_challenge(said).await;
    let found = found.map_err(|error| match error {
        AuthError::AuthorizationServerMissingIssuer { .. } => {
            refused(target, "what it publishes about it has no `issuer`")
        }
        other => told(target, &other),
    })?;
    if found.source == AuthorizationMetadataSource::LegacyEndpointFallback {
        return Err(match challenge {
            Challenge::NotAsked => SignInFailed::NotAsked {
                server: target.server.clone(),
                reason: "it lets us in as we are".to_owned(),
            },
            Challenge::Asked(_) => refused(target, "it does not say how to sign in"),
        });
    }
    check_metadata(&target.url, &found.metadata, target.settings.private_addresses)
        .map_err(|reason| refused(target, &reason))?;
    Ok(found.metadata)
}

/// What is configured and asked for by hand; else what the server says it needs.
async fn wanted_scopes(
    target: &SignInTarget,
    manager: &AuthorizationManager,
    metadata: &AuthorizationMetadata,
    more: &[String],
) -> Vec<String> {
    let mut wanted = manager.select_initial_scopes(&[]).await;
    if !target.settings.scopes.is_empty() {
        wanted.clone_from(&target.settings.scopes);
        let offline = "offline_access";
        let known = metadata.scopes_supported.iter().flatten();
        // Without it, some servers issue tokens that cannot be renewed.
        wanted.extend(known.filter(|scope| *scope == offline).cloned());
    }
    wanted.extend(more.iter().cloned());
    let mut seen = std::collections::HashSet::new();
    wanted.retain(|scope| seen.insert(scope.clone()));
    wanted
}

/// Says who we are: the configured client, or one that is registered now. Returns a new client's secret.
async fn introduce(
    target: &SignInTarget,
    manager: &mut AuthorizationManager,
    metadata: &AuthorizationMetadata,
    callback: &Callback,
    scopes: &[&str],
) -> Result<Option<String>, SignInFailed> {
    if let Some(id) = &target.network.client_id {
        let mut config = OAuthClientConfig::new(id, callback.redirect());
        if let Some(secret) = &target.network.client_secret {
            config = config.with_client_secret(secret);
        }
        manager.configure_client(config).map_err(|error| told(target, &error))?;
        return Ok(None);
    }
    if metadata.registration_endpoint.is_none() {
        let reason = "it registers no clients: register one by hand, and put its `client_id` into `auth` of the server's entry";
        return Err(failed(target, reason));
    }
    let registering = manager.register_client(CLIENT_NAME, callback.redirect(), scopes).await;
    registering.map(|config| config.client_secret).map_err(|error| told(target, &error))
}

fn state_of(address: &str) -> Option<String> {
    let url = Url::parse(address).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    url.query_pairs().find(|(name, _)| name == "state").map(|(_, state)| state.into_owned())
}

/// What the protocol's machine says, as a person reads it.
fn told(target: &SignInTarget, error: &AuthError) -> SignInFailed {
    match error {
        AuthError::AuthorizationServerMismatch { expected_issuer, received_issuer } => {
            let reason = format!(
                "it should come from `{expected_issuer}` and comes from `{received_issuer}`"
            );
            refused(target, &reason)
        }
        AuthError::AuthorizationServerMissingIssuer { .. } => refused(
            target,
            "the answer does not say who issued it (paste the whole address, not the code alone)",
        ),
        AuthError::MetadataError(reason) => refused(target, reason),
        other => failed(target, &other.to_string()),
    }
}

fn failed(target: &SignInTarget, reason: &str) -> SignInFailed {
    SignInFailed::Failed { server: target.server.clone(), reason: tidy(target, reason) }
}

fn refused(target: &SignInTarget, reason: &str) -> SignInFailed {
    SignInFailed::Refused { server: target.server.clone(), reason: tidy(target, reason) }
}

fn tidy(target: &SignInTarget, reason: &str) -> String {
    target.hidden.hide(&one_line(&shorten(reason, 400)))
}
