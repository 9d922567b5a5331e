//! The token of one connection: taken from its drawer, renewed ahead of its end, once for all processes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::transport::auth::{
    AuthError, AuthorizationManager, CredentialStore, InMemoryCredentialStore, OAuthClientConfig,
};
use tokio::time::timeout;

use super::drawer::Stamp;
use super::endpoints::check_metadata;
use super::record::{Record, Secrets};
use super::target::SignInTarget;
use crate::base::{Timestamp, now, one_line, shorten};

/// A call must not wait for a slow sign-in server longer than this.
const RENEWAL_PATIENCE: Duration = Duration::from_secs(20);
const REFUSED: &str = "its sign-in has ended: the server refused to renew it";

/// A person has to sign in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct SignInNeeded {
    /// Why, one line.
    pub(in super::super) reason: String,
    /// What to type.
    pub(in super::super) command: String,
}

/// The sign-in as one connection uses it.
pub(in super::super) struct Keeper {
    target: SignInTarget,
    known: Mutex<Option<(Stamp, Arc<Kept>)>>,
    needed: Mutex<Option<SignInNeeded>>,
}

struct Kept {
    record: Record,
    secrets: Secrets,
}

impl Keeper {
    pub(super) fn new(target: SignInTarget) -> Self {
        Self { target, known: Mutex::new(None), needed: Mutex::new(None) }
    }

    /// The token to send, fresh enough for a request; `None` where nobody has signed in.
    pub(in super::super) async fn token(&self) -> Result<Option<String>, String> {
        let Some(kept) = self.kept().await? else { return Ok(None) };
        if kept.record.is_due(now()) && kept.record.renewable {
            return self.renewed(&kept).await;
        }
        // A token that is over and cannot be renewed would only be refused.
        if kept.record.has_expired(now()) {
            return Ok(None);
        }
        Ok(kept.secrets.access_token().map(str::to_owned))
    }

    /// The server refused this token: another one, if there is one.
    pub(super) async fn another_than(&self, refused: &str) -> Result<Option<String>, String> {
        let Some(kept) = self.kept().await? else { return Ok(None) };
        match kept.secrets.access_token() {
            Some(current) if current != refused => Ok(Some(current.to_owned())),
            _ if kept.record.renewable => self.renewed(&kept).await,
            _ => Ok(None),
        }
    }

    /// Notes that a person has to sign in, for [`Self::needed`].
    pub(in super::super) fn note_refusal(&self) {
        let reason = match self.target.drawer.record() {
            Ok(Some(Record { ended: Some(reason), .. })) => reason,
            Ok(Some(record)) if record.has_expired(now()) => "its sign-in has expired".to_owned(),
            Ok(Some(_)) => "it refuses its sign-in".to_owned(),
            Ok(None) | Err(_) => "it asks for a sign-in".to_owned(),
        };
        self.note(reason);
    }

    /// The same, for a token that is good for less than was asked.
    pub(super) fn note_missing_scope(&self, scope: Option<&str>) {
        let scope = scope.map(|scope| format!(" `{}`", one_line(&shorten(scope, 100))));
        self.note(format!("its sign-in lacks the scope{}", scope.unwrap_or_default()));
    }

    fn note(&self, reason: String) {
        let needed = SignInNeeded { reason, command: self.target.command() };
        *self.needed.lock().unwrap_or_else(PoisonError::into_inner) = Some(needed);
    }

    /// Whether a request failed because a person has to sign in.
    pub(in super::super) fn needed(&self) -> Option<SignInNeeded> {
        self.needed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells one state of the sign-in from another.
    pub(in super::super) fn stamp(&self) -> Option<Stamp> {
        self.target.drawer.stamp()
    }

    /// What lies in the drawer, read anew only when it has changed.
    async fn kept(&self) -> Result<Option<Arc<Kept>>, String> {
        let Some(stamp) = self.stamp() else { return Ok(None) };
        if let Some((seen, kept)) = &*self.known()
            && *seen == stamp
        {
            return Ok(Some(Arc::clone(kept)));
        }
        let Some((record, secrets)) = self.target.drawer.read().await? else { return Ok(None) };
        let kept = Arc::new(Kept { record, secrets });
        *self.known() = Some((stamp, Arc::clone(&kept)));
        Ok(Some(kept))
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Option<(Stamp, Arc<Kept>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews the token, unless somebody else has done so meanwhile.
    async fn renewed(&self, stale: &Kept) -> Result<Option<String>, String> {
        let _lock = self.target.drawer.lock().await?;
        let Some(current) = self.kept().await? else { return Ok(None) };
        if current.secrets.access_token() != stale.secrets.access_token() {
            return Ok(current.secrets.access_token().map(str::to_owned));
        }
        let renewing = timeout(RENEWAL_PATIENCE, self.renew(&current)).await;
        match renewing.unwrap_or_else(|_| Err(Refusal::Passing("it takes too long".to_owned()))) {
            Ok(token) => Ok(Some(token)),
            Err(Refusal::Final) => {
                tracing::warn!(server = %self.target.server, "{REFUSED}");
                self.target.drawer.end(current.record.clone(), REFUSED).await?;
                Ok(None)
            }
            // Renewing early has failed, and the token is still good.
            Err(Refusal::Passing(_)) if !current.record.has_expired(now()) => {
                Ok(current.secrets.access_token().map(str::to_owned))
            }
            Err(Refusal::Passing(reason)) => {
                let reason = self.target.hidden.hide(&one_line(&shorten(&reason, 300)));
                Err(format!("its sign-in could not be renewed: {reason}"))
            }
        }
    }

    async fn renew(&self, kept: &Kept) -> Result<String, Refusal> {
        let passing = |error: AuthError| Refusal::Passing(error.to_string());
        let store = InMemoryCredentialStore::new();
        let Some(stored) = kept.secrets.stored() else { return Err(Refusal::Final) };
        let issuer = stored.issuer.clone();
        store.save(stored).await.map_err(passing)?;
        let mut manager = manager(&self.target).await.map_err(passing)?;
        manager.set_credential_store(store.clone());
        let metadata = manager.resolve_metadata().await.map_err(passing)?.metadata;
        check_metadata(&self.target.url, &metadata, self.target.settings.private_addresses)
            .map_err(Refusal::Passing)?;
        if metadata.issuer != issuer {
            // A refresh token is the old issuer's alone.
            return Err(Refusal::Final);
        }
        manager.set_metadata(metadata);
        manager.configure_client(self.client(kept)).map_err(passing)?;
        match manager.refresh_token().await {
            Ok(_) => {}
            Err(AuthError::TokenRefreshRejected(_) | AuthError::AuthorizationRequired) => {
                return Err(Refusal::Final);
            }
            Err(error) => return Err(passing(error)),
        }
        let client_secret = kept.secrets.client_secret.clone();
        self.keep(&store, client_secret).await.map_err(Refusal::Passing)
    }

    fn client(&self, kept: &Kept) -> OAuthClientConfig {
        let config = OAuthClientConfig::new(&kept.record.client_id, self.target.url.as_str());
        let configured = self.target.network.client_secret.clone();
        match configured.or_else(|| kept.secrets.client_secret.clone()) {
            Some(secret) => config.with_client_secret(secret),
            None => config,
        }
    }

    async fn keep(
        &self,
        store: &InMemoryCredentialStore,
        client_secret: Option<String>,
    ) -> Result<String, String> {
        let (record, secrets) = record_of(&self.target, store, client_secret).await?;
        self.target.drawer.write(record, &secrets).await?;
        secrets.access_token().map(str::to_owned).ok_or("the answer has no token".to_owned())
    }
}

enum Refusal {
    /// The server says no for good.
    Final,
    /// It may be otherwise the next time.
    Passing(String),
}

/// The protocol's own machine, with the addresses that it may connect to.
pub(super) async fn manager(target: &SignInTarget) -> Result<AuthorizationManager, AuthError> {
    super::super::network::install_tls();
    match target.settings.private_addresses {
        true => AuthorizationManager::new_allowing_private_addresses(target.url.clone()).await,
        false => AuthorizationManager::new(target.url.clone()).await,
    }
}

/// What the protocol's machine has put into `store`, as it is kept.
pub(super) async fn record_of(
    target: &SignInTarget,
    store: &InMemoryCredentialStore,
    client_secret: Option<String>,
) -> Result<(Record, Secrets), String> {
    let stored = store.load().await.map_err(|error| error.to_string())?;
    let stored = stored.ok_or("the answer has no token")?;
    let credentials = serde_json::to_value(&stored).map_err(|error| error.to_string())?;
    let secrets = Secrets { credentials, client_secret };
    let life = secrets.credentials.get("token_response").and_then(|t| t.get("expires_in"));
    let life = life.and_then(serde_json::Value::as_u64).map(Duration::from_secs);
    let issued_at: Timestamp = now();
    let record = Record {
        format: super::record::FORMAT,
        project: target.project.clone(),
        server: target.server.clone(),
        agent: target.agent.clone(),
        url: target.written_url.clone(),
        issuer: stored.issuer.clone(),
        client_id: stored.client_id.clone(),
        scopes: stored.granted_scopes.clone(),
        issued_at,
        expires_at: life.and_then(|life| issued_at.checked_add(life).ok()),
        renewable: secrets.token("refresh_token").is_some(),
        ended: None,
        kept_in: super::record::KeptIn::File,
        secrets: None,
    };
    Ok((record, secrets))
}
