//! Terminal side of `auth login`.
//!
//! Opens or prints the authorization page and waits for the browser's callback or a pasted address.

use std::io::{self, BufRead, IsTerminal};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::super::exit_status::ExitStatus;
use super::auth::{LoginArguments, report_failure};
use super::auth_servers::SignInSubject;
use crate::cli::output;
use crate::config::Settings;
use crate::gateway::{CallbackParams, DownstreamRegistry, LoginFlow, SignInError, open_browser};

/// Time limit of a sign-in; users may have to look up a password first.
const SIGN_IN_TIMEOUT: Duration = Duration::from_mins(10);

/// Signs in, then verifies the token by listing the server's tools.
pub(crate) async fn sign_in(
    settings: &Settings,
    subject: &SignInSubject,
    arguments: &LoginArguments,
) -> ExitStatus {
    let signed_in = async {
        let target = subject.target(settings)?;
        let mut attempt = LoginFlow::begin(&target, &arguments.scopes).await?;
        let answer = wait_for_callback(&mut attempt, target.server(), arguments.no_browser).await?;
        attempt.exchange_code(answer).await
    };
    match signed_in.await {
        Ok(()) => verify_sign_in(settings, subject).await,
        Err(error) => report_failure(&error),
    }
}

async fn wait_for_callback(
    attempt: &mut LoginFlow<'_>,
    server: &str,
    no_browser: bool,
) -> Result<CallbackParams, SignInError> {
    let address = attempt.address().to_owned();
    output::print_message(format_args!("To sign in to `{server}`, open this page:"));
    output::print(&address);
    let mut opening = None;
    if !no_browser {
        opening = Some(tokio::spawn(async move { open_browser(&address).await }));
    }
    let mut pasted = match no_browser || io::stdin().is_terminal() {
        true => {
            output::print_message(
                "If the browser runs on another machine, it ends on a page that cannot be opened: \
                 paste the address of that page here.",
            );
            spawn_stdin_reader()
        }
        false => mpsc::channel(1).1,
    };
    let waiting = async {
        loop {
            tokio::select! {
                answer = attempt.wait_for_callback() => return answer,
                Some(text) = pasted.recv() => match attempt.parse_pasted(&text) {
                    Err(SignInError::Refused { reason, .. }) => output::print_error(reason),
                    read => return read,
                },
                said = async { opening.as_mut()?.await.ok() }, if opening.is_some() => {
                    opening = None;
                    if let Some(Err(reason)) = said {
                        output::print_message(format_args!("{reason}: open the page yourself"));
                    }
                }
            }
        }
    };
    let late = || SignInError::Failed {
        server: server.to_owned(),
        reason: format!("nobody answered within {} minutes", SIGN_IN_TIMEOUT.as_secs() / 60),
    };
    timeout(SIGN_IN_TIMEOUT, waiting).await.unwrap_or_else(|_| Err(late()))
}

/// Reads stdin on a separate thread, because a blocking read cannot be cancelled.
fn spawn_stdin_reader() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if !line.trim().is_empty() && sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Lists the server's tools and prints their number; fails if the server rejects the token.
async fn verify_sign_in(settings: &Settings, subject: &SignInSubject) -> ExitStatus {
    let pool = DownstreamRegistry::new(settings.root.clone());
    let server = pool.get_or_create(subject.scope(), &subject.spec);
    let tools = server.tools().await;
    pool.close().await;
    match tools {
        Ok(list) => {
            let (name, count) = (&subject.spec.name, list.tools.len());
            let tools = if count == 1 { "tool" } else { "tools" };
            output::print_message(format_args!(
                "Signed in to `{name}`, which offers {count} {tools}."
            ));
            ExitStatus::Success
        }
        Err(error) => {
            output::print_error(format_args!("the sign-in is there, but {error}"));
            ExitStatus::Failure
        }
    }
}
