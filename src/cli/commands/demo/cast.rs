//! Who plays: the best that is there, and it is said who it is.

use std::io;
use std::path::PathBuf;

use super::install;
use super::scene::Scene;
use super::stand_in;
use crate::call::{credentials, locate};
use crate::config::Settings;
use crate::scripted::ScriptedModel;

/// Who plays.
pub(super) struct Cast {
    /// The program for the subagent, and for the main agent if it is a `claude` too.
    pub(super) claude: PathBuf,
    pub(super) main: Main,
    pub(super) model: Option<ScriptedModel>,
    pub(super) is_scripted: bool,
    pub(super) introduction: Vec<String>,
}

/// Who plays the main agent.
pub(super) enum Main {
    Claude,
    StandIn,
}

/// The real `claude` with credentials; else the real one with a scripted model; else a stand-in.
pub(super) async fn choose(settings: &Settings, scene: &Scene, scripted: bool) -> io::Result<Cast> {
    let found = locate(settings).ok();
    let signed_in = credentials().filter(|_| !scripted);
    if let (Some(claude), Some(place)) = (&found, signed_in) {
        return Ok(real(claude.clone(), &place));
    }
    let why = match (&found, scripted) {
        (_, true) => "as you asked, the model is scripted: it costs nothing and needs no account",
        (None, _) => "there is no `claude` on the PATH, so a scripted model plays the model",
        (Some(_), _) => "there are no credentials, so a scripted model plays the model",
    };
    let claude = match found {
        Some(claude) => Ok(claude),
        None => install::claude().await,
    };
    match claude {
        Ok(claude) => with_scripted_model(claude, why),
        Err(reason) => standing_in(scene, &reason),
    }
}

fn real(claude: PathBuf, place: &str) -> Cast {
    let introduction = vec![
        format!("main         claude ({})", claude.display()),
        "web-search   a second claude, started by Adjutant".to_owned(),
        format!("the model    the real one, with {place}; this costs a few cents"),
    ];
    Cast { claude, main: Main::Claude, model: None, is_scripted: false, introduction }
}

fn with_scripted_model(claude: PathBuf, why: &str) -> io::Result<Cast> {
    let model = ScriptedModel::start()?;
    let introduction = vec![
        format!("main         the real claude ({})", claude.display()),
        "web-search   a second real claude, started by Adjutant".to_owned(),
        format!("the model    scripted, on this machine: {why}"),
    ];
    Ok(Cast { claude, main: Main::Claude, model: Some(model), is_scripted: true, introduction })
}

fn standing_in(scene: &Scene, reason: &str) -> io::Result<Cast> {
    let claude = stand_in::put_into(scene.scratch())?;
    let introduction = vec![
        format!("There is no claude here, and it could not be installed: {reason}"),
        "main         a STAND-IN inside this demo, not a claude".to_owned(),
        "web-search   a STAND-IN that speaks claude's language, started by the real Adjutant"
            .to_owned(),
        "the model    none: the stand-ins follow a script".to_owned(),
    ];
    Ok(Cast { claude, main: Main::StandIn, model: None, is_scripted: true, introduction })
}
