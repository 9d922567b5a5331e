//! The login to the model: which kind of credential it is, and its current value.
//!
//! The value exists outside of the sandbox only. Inside there is a dummy of the same kind, so that `claude` sends the
//! `anthropic-beta` values that belong to it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tokio::sync::Mutex;

use crate::process::{CommandEnd, ProcessEnd, ProcessSpec, SymlinkPolicy, run_command};
use crate::store::read_bounded;
use crate::util::RunId;

const MAX_FILE_BYTES: u64 = 1 << 20;
const HELPER_TIMEOUT: Duration = Duration::from_mins(1);
/// Age from which the helper is run again, as in Claude Code.
const HELPER_MAX_AGE: Duration = Duration::from_mins(5);
const MAX_KEY_BYTES: u64 = 64 << 10;

/// Where the credential of the model comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelLogin {
    /// `ANTHROPIC_API_KEY`, `ANTHROPIC_AUTH_TOKEN`, or both: each has its own header.
    Variables { api_key: Option<String>, auth_token: Option<String> },
    /// Output of the `apiKeyHelper` of the user's settings.
    Helper { command: String, environment: Vec<(OsString, OsString)> },
    /// `CLAUDE_CODE_OAUTH_TOKEN`.
    OauthToken(String),
    /// Access token in the `.credentials.json` of `claude`'s sign-in.
    SignIn { file: PathBuf },
}

/// Headers of a request to the model.
pub(super) type CredentialHeaders = Vec<(&'static str, String)>;

impl ModelLogin {
    /// Returns the login that `claude` would use with these variables and this configuration directory.
    ///
    /// # Errors
    ///
    /// If there is none, or one that a proxy cannot take the place of.
    pub fn find(
        lookup: impl Fn(&str) -> Option<String>,
        config_dir: &Path,
    ) -> Result<Self, String> {
        let value = |name: &str| lookup(name).filter(|value| !value.is_empty());
        for (name, cloud) in [
            ("CLAUDE_CODE_USE_BEDROCK", "Amazon Bedrock"),
            ("CLAUDE_CODE_USE_VERTEX", "Google Vertex AI"),
            ("CLAUDE_CODE_USE_FOUNDRY", "Microsoft Foundry"),
        ] {
            if value(name)
                .is_some_and(|value| !["0", "false", "no", "off"].contains(&value.as_str()))
            {
                return Err(format!(
                    "{cloud} signs requests in the process of `claude`, with keys that a sandbox must not have ({name} is set)"
                ));
            }
        }
        let (api_key, auth_token) = (value("ANTHROPIC_API_KEY"), value("ANTHROPIC_AUTH_TOKEN"));
        if api_key.is_some() || auth_token.is_some() {
            return Ok(Self::Variables { api_key, auth_token });
        }
        if let Some(command) = api_key_helper(config_dir)? {
            let environment = ["PATH", "HOME", "USER", "SHELL", "LANG"]
                .into_iter()
                .filter_map(|name| Some((name.into(), value(name)?.into())))
                .collect();
            return Ok(Self::Helper { command, environment });
        }
        if let Some(token) = value("CLAUDE_CODE_OAUTH_TOKEN") {
            return Ok(Self::OauthToken(token));
        }
        let file = config_dir.join(".credentials.json");
        match file.is_file() {
            true => Ok(Self::SignIn { file }),
            false => {
                Err("there is no login: set ANTHROPIC_API_KEY, or run `claude setup-token`"
                    .to_owned())
            }
        }
    }

    /// Returns the variables with which a process inside believes to be logged in.
    pub fn dummies(&self) -> Vec<(&'static str, &'static str)> {
        let api_key = ("ANTHROPIC_API_KEY", "sk-ant-api03-not-the-real-key-adjutant-replaces-it");
        let auth_token = ("ANTHROPIC_AUTH_TOKEN", "not-the-real-token-adjutant-replaces-it");
        match self {
            Self::Variables { api_key: known, auth_token: token } => {
                let both = [known.as_ref().map(|_| api_key), token.as_ref().map(|_| auth_token)];
                both.into_iter().flatten().collect()
            }
            Self::Helper { .. } => vec![api_key],
            Self::OauthToken(_) | Self::SignIn { .. } => {
                vec![(
                    "CLAUDE_CODE_OAUTH_TOKEN",
                    "sk-ant-oat01-not-the-real-token-adjutant-replaces-it",
                )]
            }
        }
    }
}

/// The login with what was read from it last.
#[derive(Debug)]
pub(super) struct ModelCredential {
    login: ModelLogin,
    helper_output: Mutex<Option<(Instant, String)>>,
}

impl ModelCredential {
    pub(super) fn new(login: ModelLogin) -> Self {
        Self { login, helper_output: Mutex::new(None) }
    }

    /// Returns the headers for the next request. Blocks on a small file only for a sign-in.
    ///
    /// # Errors
    ///
    /// The reason and what a person must do.
    pub(super) async fn headers(&self) -> Result<CredentialHeaders, String> {
        let bearer = |token: &str| ("authorization", format!("Bearer {token}"));
        Ok(match &self.login {
            ModelLogin::Variables { api_key, auth_token } => {
                let key = api_key.clone().map(|key| ("x-api-key", key));
                key.into_iter().chain(auth_token.as_deref().map(bearer)).collect()
            }
            ModelLogin::OauthToken(token) => vec![bearer(token)],
            ModelLogin::SignIn { file } => vec![bearer(&access_token(file, SystemTime::now())?)],
            ModelLogin::Helper { command, environment } => {
                let mut known = self.helper_output.lock().await;
                let fresh = known.as_ref().filter(|(at, _)| at.elapsed() < HELPER_MAX_AGE);
                let key = match fresh {
                    Some((_, key)) => key.clone(),
                    None => run_helper(command, environment).await?,
                };
                if fresh.is_none() {
                    *known = Some((Instant::now(), key.clone()));
                }
                vec![("x-api-key", key.clone()), bearer(&key)]
            }
        })
    }

    /// Forgets the output of the helper after the model has refused it.
    pub(super) async fn was_refused(&self) {
        *self.helper_output.lock().await = None;
    }
}

/// Reads `apiKeyHelper` of the user's settings.
fn api_key_helper(config_dir: &Path) -> Result<Option<String>, String> {
    let file = config_dir.join("settings.json");
    if fs::symlink_metadata(&file).is_err() {
        return Ok(None);
    }
    let bytes = read_bounded(&file, MAX_FILE_BYTES)
        .map_err(|error| format!("`{}` cannot be read: {error}", file.display()))?;
    let settings: Value = serde_json::from_slice(&bytes)
        .map_err(|error| format!("`{}` is not JSON: {error}", file.display()))?;
    let command = settings.get("apiKeyHelper").and_then(Value::as_str);
    Ok(command.filter(|command| !command.trim().is_empty()).map(str::to_owned))
}

/// Runs the helper as Claude Code does: by a shell, its output is the key.
async fn run_helper(command: &str, environment: &[(OsString, OsString)]) -> Result<String, String> {
    let spec = ProcessSpec {
        label: "apiKeyHelper".to_owned(),
        run: RunId::new(),
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), command.into()],
        environment: environment.to_vec(),
        working_dir: "/".into(),
        symlinks: SymlinkPolicy::Follow,
    };
    let output = run_command(spec, Vec::new(), HELPER_TIMEOUT, MAX_KEY_BYTES)
        .await
        .map_err(|error| format!("the apiKeyHelper could not be started: {error}"))?;
    match output.end {
        CommandEnd::TimedOut => Err("the apiKeyHelper took longer than 60 s".to_owned()),
        CommandEnd::Exited(ProcessEnd::Exited(0)) if !output.stdout.trim().is_empty() => {
            Ok(output.stdout.trim().to_owned())
        }
        // Its output may be half a key, so it is not part of the message.
        CommandEnd::Exited(_) => Err("the apiKeyHelper failed: run it in a shell".to_owned()),
    }
}

/// Reads the access token of a sign-in.
fn access_token(file: &Path, now: SystemTime) -> Result<String, String> {
    const HELP: &str = "run `claude setup-token` and set CLAUDE_CODE_OAUTH_TOKEN";
    let bytes = read_bounded(file, MAX_FILE_BYTES)
        .map_err(|error| format!("`{}` cannot be read: {error}; {HELP}", file.display()))?;
    let stored: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let login = stored.get("claudeAiOauth").unwrap_or(&Value::Null);
    let token = login.get("accessToken").and_then(Value::as_str).filter(|token| !token.is_empty());
    let token = token.ok_or_else(|| format!("`{}` has no access token; {HELP}", file.display()))?;
    let expires = login.get("expiresAt").and_then(Value::as_u64).unwrap_or(u64::MAX);
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    match u128::from(expires) > now {
        true => Ok(token.to_owned()),
        false => Err(format!("the sign-in of Claude Code has expired; {HELP}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn find(variables: &[(&str, &str)], files: &[(&str, &str)]) -> Result<ModelLogin, String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in files {
            fs::write(dir.path().join(name), content).unwrap();
        }
        let lookup = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        ModelLogin::find(lookup, dir.path())
    }

    #[test_case("CLAUDE_CODE_USE_BEDROCK")]
    #[test_case("CLAUDE_CODE_USE_VERTEX")]
    #[test_case("CLAUDE_CODE_USE_FOUNDRY")]
    fn clouds_are_refused_although_a_key_is_set(name: &str) {
        let refused = find(&[(name, "1"), ("ANTHROPIC_API_KEY", "k")], &[]).unwrap_err();
        assert!(refused.contains(name), "{refused}");
        assert!(find(&[(name, "0"), ("ANTHROPIC_API_KEY", "k")], &[]).is_ok());
    }

    #[test]
    fn the_login_is_the_one_that_claude_would_use() {
        let helper = ("settings.json", r#"{"apiKeyHelper": "echo key"}"#);
        let sign_in = (".credentials.json", "{}");
        let token = ("CLAUDE_CODE_OAUTH_TOKEN", "t");
        let names = |login: Result<ModelLogin, String>| {
            login.unwrap().dummies().into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        let all = [("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_AUTH_TOKEN", "a"), token];
        assert_eq!(names(find(&all, &[helper])), ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"]);
        assert!(matches!(find(&[token], &[helper]), Ok(ModelLogin::Helper { .. })));
        assert_eq!(find(&[token], &[sign_in]), Ok(ModelLogin::OauthToken("t".into())));
        assert_eq!(names(find(&[], &[sign_in])), ["CLAUDE_CODE_OAUTH_TOKEN"]);
        assert!(find(&[("ANTHROPIC_API_KEY", "")], &[]).unwrap_err().contains("no login"));
        assert!(find(&[], &[("settings.json", "{")]).is_err());
    }

    #[test]
    fn an_expired_sign_in_names_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(".credentials.json");
        let at = |now: u64| access_token(&file, UNIX_EPOCH + Duration::from_millis(now));
        fs::write(&file, r#"{"claudeAiOauth": {"accessToken": "real", "expiresAt": 1000}}"#)
            .unwrap();
        assert_eq!(at(999), Ok("real".into()));
        assert!(at(1000).unwrap_err().contains("claude setup-token"));
        fs::write(&file, "{}").unwrap();
        assert!(at(0).unwrap_err().contains("has no access token"));
    }
}
