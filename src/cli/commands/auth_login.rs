//! A sign-in at the terminal: the page is opened or printed, the answer comes from the browser or is pasted.

use std::io::{self, BufRead, IsTerminal};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::auth::{LoginArguments, failed};
use super::exit::Exit;
use super::render;
use super::sign_in_servers::Subject;
use crate::config::Settings;
use crate::gateway::{Answer, Attempt, Pool, SignInFailed, open_browser};

/// A person may have to find a password first.
const PATIENCE: Duration = Duration::from_mins(10);

/// Signs in, from the question to a first look at the server's tools.
pub(super) async fn sign_in(
    settings: &Settings,
    subject: &Subject,
    arguments: &LoginArguments,
) -> Exit {
    let signed_in = async {
        let target = subject.target(settings)?;
        let mut attempt = Attempt::begin(&target, &arguments.scopes).await?;
        let answer = ask(&mut attempt, target.server(), arguments.no_browser).await?;
        attempt.finish(answer).await
    };
    match signed_in.await {
        Ok(()) => look(settings, subject).await,
        Err(error) => failed(&error),
    }
}

async fn ask(
    attempt: &mut Attempt<'_>,
    server: &str,
    no_browser: bool,
) -> Result<Answer, SignInFailed> {
    let address = attempt.address().to_owned();
    render::talk(format_args!("To sign in to `{server}`, open this page:"));
    render::data(&address);
    let mut opening = None;
    if !no_browser {
        opening = Some(tokio::spawn(async move { open_browser(&address).await }));
    }
    let mut pasted = match no_browser || io::stdin().is_terminal() {
        true => {
            render::talk(
                "If the browser runs on another machine, it ends on a page that cannot be opened: \
                 paste the address of that page here.",
            );
            lines()
        }
        false => mpsc::channel(1).1,
    };
    let waiting = async {
        loop {
            tokio::select! {
                answer = attempt.answer() => return answer,
                Some(text) = pasted.recv() => match attempt.read_pasted(&text) {
                    Err(SignInFailed::Refused { reason, .. }) => render::problem(reason),
                    read => return read,
                },
                said = async { opening.as_mut()?.await.ok() }, if opening.is_some() => {
                    opening = None;
                    if let Some(Err(reason)) = said {
                        render::talk(format_args!("{reason}: open the page yourself"));
                    }
                }
            }
        }
    };
    let late = || SignInFailed::Failed {
        server: server.to_owned(),
        reason: format!("nobody answered within {} minutes", PATIENCE.as_secs() / 60),
    };
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| Err(late()))
}

/// What is typed, line by line. In a thread of its own: a read of stdin cannot be called back.
fn lines() -> mpsc::Receiver<String> {
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

/// Says what the sign-in is good for: a token that the server does not take is no success.
async fn look(settings: &Settings, subject: &Subject) -> Exit {
    let pool = Pool::new(settings.root.clone());
    let server = pool.acquire(subject.scope(), &subject.spec);
    let tools = server.tools().await;
    pool.close().await;
    match tools {
        Ok(list) => {
            let (name, count) = (&subject.spec.name, list.tools.len());
            let tools = if count == 1 { "tool" } else { "tools" };
            render::talk(format_args!("Signed in to `{name}`, which offers {count} {tools}."));
            Exit::Success
        }
        Err(error) => {
            render::problem(format_args!("the sign-in is there, but {error}"));
            Exit::Failure
        }
    }
}
