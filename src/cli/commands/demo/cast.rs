//! Chooses the programs and the model of the demo, and describes them to the user.

use std::io;
use std::path::PathBuf;

use super::project::DemoProject;
use super::{install, stand_in};
use crate::config::Settings;
use crate::delegation::{find_credentials, locate_program};
use crate::scripted_model::ScriptedModel;

/// Programs and model of one demo.
pub(crate) struct DemoCast {
    /// Program of the subagent, and of the main agent for `DemoClient::Claude`.
    pub(crate) claude: PathBuf,
    pub(crate) client: DemoClient,
    pub(crate) model: Option<ScriptedModel>,
    pub(crate) is_scripted: bool,
    pub(crate) introduction: Vec<String>,
}

/// Program that acts as the main agent.
pub(crate) enum DemoClient {
    Claude,
    StandIn,
}

/// Chooses `claude` with credentials, else `claude` with a scripted model, else the stand-in.
pub(crate) async fn choose(
    settings: &Settings,
    scene: &DemoProject,
    scripted: bool,
) -> io::Result<DemoCast> {
    let found = locate_program(settings).ok();
    let signed_in = find_credentials().filter(|_| !scripted);
    if let (Some(claude), Some(place)) = (&found, signed_in) {
        return Ok(with_real_model(claude.clone(), &place));
    }
    let why = match (&found, scripted) {
        (_, true) => "as you asked, the model is scripted: it costs nothing and needs no account",
        (None, _) => "there is no `claude` on the PATH, so a scripted model plays the model",
        (Some(_), _) => "there are no credentials, so a scripted model plays the model",
    };
    let claude = match found {
        Some(claude) => Ok(claude),
        None => install::ensure_installed().await,
    };
    match claude {
        Ok(claude) => with_scripted_model(claude, why),
        Err(reason) => with_stand_in(scene, &reason),
    }
}

fn with_real_model(claude: PathBuf, place: &str) -> DemoCast {
    let introduction = vec![
        format!("main         claude ({})", claude.display()),
        "web-search   a second claude, started by Adjutant".to_owned(),
        format!("the model    the real one, with {place}; this costs a few cents"),
    ];
    DemoCast { claude, client: DemoClient::Claude, model: None, is_scripted: false, introduction }
}

fn with_scripted_model(claude: PathBuf, why: &str) -> io::Result<DemoCast> {
    let model = ScriptedModel::start()?;
    let introduction = vec![
        format!("main         the real claude ({})", claude.display()),
        "web-search   a second real claude, started by Adjutant".to_owned(),
        format!("the model    scripted, on this machine: {why}"),
    ];
    Ok(DemoCast {
        claude,
        client: DemoClient::Claude,
        model: Some(model),
        is_scripted: true,
        introduction,
    })
}

fn with_stand_in(scene: &DemoProject, reason: &str) -> io::Result<DemoCast> {
    let claude = stand_in::install_into(scene.scratch_dir())?;
    let introduction = vec![
        format!("There is no claude here, and it could not be installed: {reason}"),
        "main         a STAND-IN inside this demo, not a claude".to_owned(),
        "web-search   a STAND-IN that speaks claude's language, started by the real Adjutant"
            .to_owned(),
        "the model    none: the stand-ins follow a script".to_owned(),
    ];
    Ok(DemoCast {
        claude,
        client: DemoClient::StandIn,
        model: None,
        is_scripted: true,
        introduction,
    })
}
