//! Access token of one connection, refreshed before it expires, once for all processes.

use std::sync::Arc;
use std::time::Duration;

use rmcp::transport::auth::{
    AuthError, AuthorizationManager, CredentialStore, InMemoryCredentialStore, OAuthClientConfig,
};
use tokio::time::timeout;

use super::credentials::{CredentialRecord, CredentialSecrets};
use super::endpoints::check_metadata;
use super::target::{SignInError, SignInTarget};
use crate::store::{DocumentLock, FileVersion, FormatNumber};
use crate::util::{Mutex, Timestamp, now, one_line, shorten};

/// Limit for a refresh, which delays the call that needs it.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(20);
const REFRESH_REJECTED: &str = "its sign-in has ended: the server refused to renew it";

/// A person has to sign in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SignInNeeded {
    pub(crate) reason: String,
    /// Command to run.
    pub(crate) command: String,
}

/// Supplies the access token of one connection.
pub(crate) struct TokenSource {
    target: SignInTarget,
    /// The credentials that were read last, so that the keyring is not asked for every request.
    cached: Mutex<Option<Arc<CachedCredentials>>>,
    sign_in_needed: Mutex<Option<SignInNeeded>>,
}

struct CachedCredentials {
    record: Arc<CredentialRecord>,
    secrets: CredentialSecrets,
}

impl TokenSource {
    pub(crate) fn new(target: SignInTarget) -> Self {
        Self { target, cached: Mutex::new(None), sign_in_needed: Mutex::new(None) }
    }

    /// Returns a valid access token, refreshed if necessary; `None` if a person has to sign in.
    pub(crate) async fn token(&self) -> Result<Option<String>, String> {
        let Some(kept) = self.credentials().await? else { return Ok(None) };
        if kept.record.needs_refresh(now()) && kept.record.renewable {
            return self.refresh_once(&kept).await;
        }
        // The server would reject an expired token.
        if kept.record.has_expired(now()) {
            return Ok(None);
        }
        Ok(kept.secrets.access_token().map(str::to_owned))
    }

    /// Returns another token after the server rejected `refused`; `None` if there is none.
    pub(crate) async fn replace_rejected(&self, refused: &str) -> Result<Option<String>, String> {
        let Some(kept) = self.credentials().await? else { return Ok(None) };
        match kept.secrets.access_token() {
            Some(current) if current != refused => Ok(Some(current.to_owned())),
            _ if kept.record.renewable => self.refresh_once(&kept).await,
            _ => Ok(None),
        }
    }

    /// Notes that a person has to sign in; see [`Self::sign_in_needed`].
    pub(crate) fn note_sign_in_needed(&self) {
        let reason = match self.target.credential_file.record() {
            Ok(Some(record)) => match &record.ended {
                Some(reason) => reason.clone(),
                None if record.has_expired(now()) => "its sign-in has expired".to_owned(),
                None => "it refuses its sign-in".to_owned(),
            },
            Ok(None) | Err(_) => "it asks for a sign-in".to_owned(),
        };
        self.set_sign_in_needed(reason);
    }

    /// Like [`Self::note_sign_in_needed`], for a token without the required scope.
    pub(crate) fn note_missing_scope(&self, scope: Option<&str>) {
        let scope = scope.map(|scope| format!(" `{}`", one_line(&shorten(scope, 100))));
        self.set_sign_in_needed(format!(
            "its sign-in lacks the scope{}",
            scope.unwrap_or_default()
        ));
    }

    fn set_sign_in_needed(&self, reason: String) {
        let needed = SignInNeeded { reason, command: self.target.login_command() };
        *self.sign_in_needed.lock() = Some(needed);
    }

    /// Returns the required sign-in if a request failed for lack of it.
    pub(crate) fn needed(&self) -> Option<SignInNeeded> {
        self.sign_in_needed.lock().clone()
    }

    /// Returns the version of the stored credentials.
    pub(crate) fn version(&self) -> Option<FileVersion> {
        self.target.credential_file.version()
    }

    /// Returns the stored credentials; one `stat` if the file is unchanged.
    async fn credentials(&self) -> Result<Option<Arc<CachedCredentials>>, String> {
        let Some(record) = self.target.credential_file.record().map_err(store_error)? else {
            return Ok(None);
        };
        if let Some(kept) = &*self.cached.lock()
            && Arc::ptr_eq(&kept.record, &record)
        {
            return Ok(Some(Arc::clone(kept)));
        }
        let secrets = self.target.credential_file.read_secrets(&record).await?;
        let kept = secrets.map(|secrets| Arc::new(CachedCredentials { record, secrets }));
        self.cached.lock().clone_from(&kept);
        Ok(kept)
    }

    /// Refreshes the token under the lock, unless another process has done so in the meantime.
    async fn refresh_once(&self, stale: &CachedCredentials) -> Result<Option<String>, String> {
        let lock = self.target.credential_file.lock().await.map_err(store_error)?;
        let Some(current) = self.credentials().await? else { return Ok(None) };
        if current.secrets.access_token() != stale.secrets.access_token() {
            return Ok(current.secrets.access_token().map(str::to_owned));
        }
        let renewing = timeout(REFRESH_TIMEOUT, self.refresh(&lock, &current)).await;
        match renewing
            .unwrap_or_else(|_| Err(RefreshError::Temporary("it takes too long".to_owned())))
        {
            Ok(token) => Ok(Some(token)),
            Err(RefreshError::Permanent) => {
                tracing::warn!(server = %self.target.server, "{REFRESH_REJECTED}");
                self.target
                    .credential_file
                    .mark_ended(&lock, CredentialRecord::clone(&current.record), REFRESH_REJECTED)
                    .await
                    .map_err(store_error)?;
                Ok(None)
            }
            // A failed early refresh leaves a token that is still valid.
            Err(RefreshError::Temporary(_)) if !current.record.has_expired(now()) => {
                Ok(current.secrets.access_token().map(str::to_owned))
            }
            Err(RefreshError::Temporary(reason)) => {
                let reason = self.target.secrets.redact(&one_line(&shorten(&reason, 300)));
                Err(format!("its sign-in could not be renewed: {reason}"))
            }
        }
    }

    async fn refresh(
        &self,
        lock: &Arc<DocumentLock>,
        kept: &CachedCredentials,
    ) -> Result<String, RefreshError> {
        let passing = |error: AuthError| RefreshError::Temporary(error.to_string());
        let store = InMemoryCredentialStore::new();
        let Some(stored) = kept.secrets.to_stored_credentials() else {
            return Err(RefreshError::Permanent);
        };
        let issuer = stored.issuer.clone();
        store.save(stored).await.map_err(passing)?;
        let mut manager = authorization_manager(&self.target).await.map_err(passing)?;
        manager.set_credential_store(store.clone());
        let metadata = manager.resolve_metadata().await.map_err(passing)?.metadata;
        check_metadata(&self.target.url, &metadata, self.target.oauth.private_addresses)
            .map_err(RefreshError::Temporary)?;
        if metadata.issuer != issuer {
            // A refresh token must not be sent to another issuer.
            return Err(RefreshError::Permanent);
        }
        manager.set_metadata(metadata);
        manager.configure_client(self.client_config(kept)).map_err(passing)?;
        match manager.refresh_token().await {
            Ok(_) => {}
            Err(AuthError::TokenRefreshRejected(_) | AuthError::AuthorizationRequired) => {
                return Err(RefreshError::Permanent);
            }
            Err(error) => return Err(passing(error)),
        }
        let client_secret = kept.secrets.client_secret.clone();
        self.store_credentials(lock, &store, client_secret).await.map_err(RefreshError::Temporary)
    }

    fn client_config(&self, kept: &CachedCredentials) -> OAuthClientConfig {
        let config = OAuthClientConfig::new(&kept.record.client_id, self.target.url.as_str());
        let configured = self.target.endpoint.client_secret.clone();
        match configured.or_else(|| kept.secrets.client_secret.clone()) {
            Some(secret) => config.with_client_secret(secret),
            None => config,
        }
    }

    async fn store_credentials(
        &self,
        lock: &Arc<DocumentLock>,
        store: &InMemoryCredentialStore,
        client_secret: Option<String>,
    ) -> Result<String, String> {
        let (record, secrets) = credentials_to_store(&self.target, store, client_secret).await?;
        let file = &self.target.credential_file;
        file.write(lock, record, &secrets).await.map_err(store_error)?;
        secrets.access_token().map(str::to_owned).ok_or("the answer has no token".to_owned())
    }
}

/// The code stands in the reason for which the server is unavailable.
fn store_error(reason: String) -> String {
    SignInError::Store { reason }.to_string()
}

enum RefreshError {
    /// Rejected permanently.
    Permanent,
    /// Failed temporarily.
    Temporary(String),
}

/// Creates the OAuth library's manager; private addresses only if configured.
pub(crate) async fn authorization_manager(
    target: &SignInTarget,
) -> Result<AuthorizationManager, AuthError> {
    crate::gateway::downstream::install_tls_provider();
    match target.oauth.private_addresses {
        true => AuthorizationManager::new_allowing_private_addresses(target.url.clone()).await,
        false => AuthorizationManager::new(target.url.clone()).await,
    }
}

/// Converts the credentials in `store` to the stored format.
pub(crate) async fn credentials_to_store(
    target: &SignInTarget,
    store: &InMemoryCredentialStore,
    client_secret: Option<String>,
) -> Result<(CredentialRecord, CredentialSecrets), String> {
    let stored = store.load().await.map_err(|error| error.to_string())?;
    let stored = stored.ok_or("the answer has no token")?;
    let credentials = serde_json::to_value(&stored).map_err(|error| error.to_string())?;
    let secrets = CredentialSecrets { credentials, client_secret };
    let life = secrets.credentials.get("token_response").and_then(|t| t.get("expires_in"));
    let life = life.and_then(serde_json::Value::as_u64).map(Duration::from_secs);
    let issued_at: Timestamp = now();
    let record = CredentialRecord {
        format: FormatNumber,
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
        kept_in: super::credentials::SecretStorage::File,
        secrets: None,
    };
    Ok((record, secrets))
}
