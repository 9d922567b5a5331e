//! OAuth authorization code flow with PKCE for one server, run by `adjutant auth login`.

use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use reqwest::{StatusCode, Url};
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, AuthorizationMetadataSource,
    InMemoryCredentialStore, OAuthClientConfig,
};
use serde_json::json;
use tokio::time::timeout;

use super::callback::{CallbackListener, CallbackParams, parse_query};
use super::endpoints::check_metadata;
use super::target::{SignInError, SignInTarget};
use super::token_source::{authorization_manager, credentials_to_store};
use crate::catalog::HttpTransportKind;
use crate::gateway::downstream::http;
use crate::jsonrpc::{Frame, LineJson};
use crate::process::open_url;
use crate::util::{one_line, shorten};

/// Client name shown on the consent page.
const CLIENT_NAME: &str = "Adjutant";
/// Limit for all requests before the browser is opened.
const PREPARE_TIMEOUT: Duration = Duration::from_mins(1);

/// A sign-in in progress.
pub(crate) struct LoginFlow<'a> {
    target: &'a SignInTarget,
    manager: AuthorizationManager,
    store: InMemoryCredentialStore,
    client_secret: Option<String>,
    callback: CallbackListener,
    authorization_url: String,
    state: String,
}

impl<'a> LoginFlow<'a> {
    /// Discovers the authorization server, checks its metadata and registers a client if necessary.
    ///
    /// `scopes` are requested in addition to the configured or advertised ones. Takes at most 1 min.
    pub(crate) async fn begin(
        target: &'a SignInTarget,
        scopes: &[String],
    ) -> Result<Self, SignInError> {
        let beginning = timeout(PREPARE_TIMEOUT, Self::prepare(target, scopes));
        match beginning.await {
            Ok(begun) => begun,
            Err(_) => Err(target.failed("it takes too long to say how to sign in")),
        }
    }

    async fn prepare(target: &'a SignInTarget, scopes: &[String]) -> Result<Self, SignInError> {
        let challenge = probe_server(target).await?;
        let store = InMemoryCredentialStore::new();
        let mut manager =
            authorization_manager(target).await.map_err(|error| target.auth_error(&error))?;
        manager.set_credential_store(store.clone());
        let metadata = discover_metadata(target, &manager, &challenge).await?;
        manager.set_metadata(metadata.clone());
        let callback = CallbackListener::open(target.oauth.redirect_port)
            .await
            .map_err(|reason| target.failed(&reason))?;
        let scopes = scopes_to_request(target, &manager, &metadata, scopes).await;
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let client_secret =
            configure_client(target, &mut manager, &metadata, &callback, &scopes).await?;
        let address = manager
            .get_authorization_url(&scopes)
            .await
            .map_err(|error| target.auth_error(&error))?;
        let state = state_param(&address).ok_or_else(|| target.failed("no address was made"))?;
        callback.expect_state(&state);
        Ok(Self {
            target,
            manager,
            store,
            client_secret,
            callback,
            authorization_url: address,
            state,
        })
    }

    /// Returns the authorization URL; always `http` or `https`.
    pub(crate) fn address(&self) -> &str {
        &self.authorization_url
    }

    /// Waits for the redirect of the browser, without a timeout.
    pub(crate) async fn wait_for_callback(&mut self) -> Result<CallbackParams, SignInError> {
        self.callback.wait_for_result().await.map_err(|reason| self.target.denied(reason))
    }

    /// Parses pasted text: the complete redirect URL or the code alone.
    pub(crate) fn parse_pasted(&self, text: &str) -> Result<CallbackParams, SignInError> {
        let refused = |reason: &str| SignInError::Refused {
            server: self.target.server.clone(),
            reason: reason.to_owned(),
        };
        let text = text.trim();
        if !text.contains('=') {
            // A code alone has no `state`; it is still bound to this flow by the PKCE verifier.
            let plain = !text.is_empty() && !text.contains(char::is_whitespace);
            let answer =
                CallbackParams { code: text.to_owned(), state: self.state.clone(), issuer: None };
            return plain.then_some(answer).ok_or_else(|| refused("that is no code"));
        }
        let query = text.split_once('?').map_or(text, |(_, query)| query);
        let query = query.split('#').next().unwrap_or(query);
        match parse_query(query, &self.state) {
            None => Err(refused("that answer belongs to another sign-in")),
            Some(Ok(answer)) => Ok(answer),
            Some(Err(reason)) => Err(self.target.denied(reason)),
        }
    }

    /// Exchanges the code for a token and stores the credentials.
    pub(crate) async fn exchange_code(self, answer: CallbackParams) -> Result<(), SignInError> {
        let target = self.target;
        let issuer = answer.issuer.as_deref();
        let trading =
            self.manager.exchange_code_for_token_with_issuer(&answer.code, &answer.state, issuer);
        trading.await.map_err(|error| target.auth_error(&error))?;
        let (record, secrets) = credentials_to_store(target, &self.store, self.client_secret)
            .await
            .map_err(|reason| target.failed(&reason))?;
        let store = |reason| SignInError::Store { reason };
        let lock = target.credential_file.lock().await.map_err(store)?;
        target.credential_file.write(&lock, record, &secrets).await.map_err(store)
    }
}

/// Response of the server to an unauthenticated request.
enum AuthChallenge {
    /// HTTP 401, with its `WWW-Authenticate` header if present.
    Required(Option<String>),
    /// No sign-in required.
    NotRequired,
}

async fn probe_server(target: &SignInTarget) -> Result<AuthChallenge, SignInError> {
    let failed = |reason: String| target.failed(&reason);
    let client = http::http_client().map_err(failed)?;
    let headers = http::configured_headers(&target.endpoint).map_err(failed)?;
    let request = match target.endpoint.transport {
        HttpTransportKind::Sse => {
            client.get(target.url.clone()).header(ACCEPT, "text/event-stream")
        }
        HttpTransportKind::Streamable => client
            .post(target.url.clone())
            .header(ACCEPT, "application/json, text/event-stream")
            .header(CONTENT_TYPE, "application/json")
            .body(initialize_request()),
    };
    let sent = request.headers(headers.into_iter().collect()).send().await;
    let response = sent.map_err(|error| {
        let text = http::describe_transport_error(&error.without_url());
        failed(format!("the server cannot be reached: {text}"))
    })?;
    if response.status() != StatusCode::UNAUTHORIZED {
        return Ok(AuthChallenge::NotRequired);
    }
    let said = response.headers().get_all(WWW_AUTHENTICATE).iter();
    let said = said.filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(", ");
    Ok(AuthChallenge::Required((!said.is_empty()).then_some(said)))
}

fn initialize_request() -> Vec<u8> {
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "adjutant", "version": env!("CARGO_PKG_VERSION") },
    });
    let params = LineJson::encode(&params).unwrap_or_else(|_| LineJson::object(&[]));
    Frame::request(1, "initialize", &params, None).into_bytes()
}

async fn discover_metadata(
    target: &SignInTarget,
    manager: &AuthorizationManager,
    challenge: &AuthChallenge,
) -> Result<AuthorizationMetadata, SignInError> {
    let said = match challenge {
        AuthChallenge::Required(said) => said.as_deref(),
        AuthChallenge::NotRequired => None,
    };
    let found = manager.resolve_metadata_from_challenge(said).await;
    let found = found.map_err(|error| match error {
        AuthError::AuthorizationServerMissingIssuer { .. } => {
            target.refused("what it publishes about it has no `issuer`")
        }
        other => target.auth_error(&other),
    })?;
    if found.source == AuthorizationMetadataSource::LegacyEndpointFallback {
        return Err(match challenge {
            AuthChallenge::NotRequired => SignInError::NotRequired {
                server: target.server.clone(),
                reason: "it lets us in as we are".to_owned(),
            },
            AuthChallenge::Required(_) => target.refused("it does not say how to sign in"),
        });
    }
    check_metadata(&target.url, &found.metadata, target.oauth.private_addresses)
        .map_err(|reason| target.refused(&reason))?;
    Ok(found.metadata)
}

/// Returns the configured scopes, or else those the server advertises, plus `more`.
async fn scopes_to_request(
    target: &SignInTarget,
    manager: &AuthorizationManager,
    metadata: &AuthorizationMetadata,
    more: &[String],
) -> Vec<String> {
    let mut wanted = manager.select_initial_scopes(&[]).await;
    if !target.oauth.scopes.is_empty() {
        wanted.clone_from(&target.oauth.scopes);
        let offline = "offline_access";
        let known = metadata.scopes_supported.iter().flatten();
        // Without `offline_access` some servers issue no refresh token.
        wanted.extend(known.filter(|scope| *scope == offline).cloned());
    }
    wanted.extend(more.iter().cloned());
    let mut seen = std::collections::HashSet::new();
    wanted.retain(|scope| seen.insert(scope.clone()));
    wanted
}

/// Configures the client id of the entry or registers a new client. Returns the secret of a new client.
async fn configure_client(
    target: &SignInTarget,
    manager: &mut AuthorizationManager,
    metadata: &AuthorizationMetadata,
    callback: &CallbackListener,
    scopes: &[&str],
) -> Result<Option<String>, SignInError> {
    if let Some(id) = &target.endpoint.client_id {
        let mut config = OAuthClientConfig::new(id, callback.redirect());
        if let Some(secret) = &target.endpoint.client_secret {
            config = config.with_client_secret(secret);
        }
        manager.configure_client(config).map_err(|error| target.auth_error(&error))?;
        return Ok(None);
    }
    if metadata.registration_endpoint.is_none() {
        let reason = "it registers no clients: register one by hand, and put its `client_id` into `auth` of the server's entry";
        return Err(target.failed(reason));
    }
    let registering = manager.register_client(CLIENT_NAME, callback.redirect(), scopes).await;
    registering.map(|config| config.client_secret).map_err(|error| target.auth_error(&error))
}

fn state_param(address: &str) -> Option<String> {
    let url = Url::parse(address).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    url.query_pairs().find(|(name, _)| name == "state").map(|(_, state)| state.into_owned())
}

impl SignInTarget {
    /// Converts an error of the OAuth library to a message for the user.
    fn auth_error(&self, error: &AuthError) -> SignInError {
        match error {
            AuthError::AuthorizationServerMismatch { expected_issuer, received_issuer } => self
                .refused(&format!(
                    "it should come from `{expected_issuer}` and comes from `{received_issuer}`"
                )),
            AuthError::AuthorizationServerMissingIssuer { .. } => self.refused(
                "the answer does not say who issued it (paste the whole address, not the code alone)",
            ),
            AuthError::MetadataError(reason) => self.refused(reason),
            other => self.failed(&other.to_string()),
        }
    }

    fn failed(&self, reason: &str) -> SignInError {
        SignInError::Failed { server: self.server.clone(), reason: self.redact(reason) }
    }

    fn refused(&self, reason: &str) -> SignInError {
        SignInError::Refused { server: self.server.clone(), reason: self.redact(reason) }
    }

    fn denied(&self, reason: String) -> SignInError {
        SignInError::Denied { server: self.server.clone(), reason }
    }

    fn redact(&self, reason: &str) -> String {
        self.secrets.redact(&one_line(&shorten(reason, 400)))
    }
}

/// Opens an `http` or `https` URL in the desktop's browser; the error is one line.
pub(crate) async fn open_browser(address: &str) -> Result<(), String> {
    let url = Url::parse(address).map_err(|_| "the address is malformed".to_owned())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("only pages of `http` and `https` are opened".to_owned());
    }
    open_url(url.as_str()).await
}
