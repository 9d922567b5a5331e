//! From a plan to a process: variables resolved, files written, the folder opened. Nothing has started yet.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::base::{RunId, read_bounded};
use crate::catalog::{Agent, ServerLaunch, Template, UnsetVariable};
use crate::config::Settings;
use crate::outcome::{Code, Failure};
use crate::plan::{Argument, ArgumentValue, LaunchPlan, PlannedFile, VariableSource};
use crate::record::Secret;
use crate::worker::{Launch, Links, RunFolder};

const MAX_MEMORY_BYTES: u64 = 1 << 20;

/// The names of the variables that are set in our environment.
pub(super) fn present_variables() -> BTreeSet<String> {
    env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect()
}

/// The text of `memory.md` for an agent that keeps a conversation.
pub(super) fn memory(agent: &Agent) -> Result<Option<String>, Failure> {
    let Some(file) = agent.memory.as_ref().filter(|_| agent.session) else { return Ok(None) };
    match read_bounded(file, MAX_MEMORY_BYTES) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) => {
            let what = format!(
                "the memory of `{}` cannot be read: `{}`: {error}",
                agent.name,
                file.display()
            );
            Err(Failure::new(Code::AgentInvalid, what, "mend the file, or remove it"))
        }
    }
}

/// The working folder of an agent: its own, or the project's root. It must exist.
pub(super) fn folder(agent: &Agent, settings: &Settings) -> Result<PathBuf, Failure> {
    let Some(template) = &agent.cwd else { return Ok(settings.root.clone()) };
    let written = resolve(agent, "cwd", template)?;
    let folder = settings.root.join(&written);
    match folder.canonicalize() {
        Ok(folder) if folder.is_dir() => Ok(folder),
        Ok(_) => Err(bad_folder(agent, &written, "it is not a folder")),
        Err(error) => Err(bad_folder(agent, &written, &error.to_string())),
    }
}

/// A private folder for the run's files: below `data/`, or in the temporary folder where `data/` cannot be written.
pub(super) fn private_folder(settings: &Settings, run: RunId) -> io::Result<RunFolder> {
    RunFolder::create(&settings.data_dir(), run).or_else(|error| {
        tracing::warn!(%error, "`data/` cannot be written; the run's files go to the temporary folder");
        RunFolder::create(&env::temp_dir().join(format!("adjutant-{}", nix::unistd::Uid::effective())), run)
    })
}

/// The process to start, with the private files it needs already written.
pub(super) fn launch(
    agent: &Agent,
    plan: &LaunchPlan,
    run: RunId,
    folder: PathBuf,
    files: &RunFolder,
) -> Result<Launch, Failure> {
    write_files(plan, files).map_err(|error| {
        let what = format!("the private files of the run cannot be written: {error}");
        Failure::new(
            Code::SpawnFailed,
            what,
            "look at the free space and the rights of the temporary folder",
        )
    })?;
    let arguments = plan
        .arguments
        .iter()
        .map(|argument| written(agent, argument, &folder, files))
        .collect::<Result<_, _>>()?;
    let environment = environment(agent, plan)?;
    Ok(Launch {
        label: agent.name.to_string(),
        run,
        program: plan.program.clone(),
        arguments,
        environment,
        folder,
        links: Links::Refuse,
    })
}

fn write_files(plan: &LaunchPlan, files: &RunFolder) -> io::Result<()> {
    files.write(PlannedFile::SystemPrompt.file_name(), plan.system_prompt.as_bytes())?;
    files.write(PlannedFile::Settings.file_name(), plan.settings.to_string().as_bytes())?;
    Ok(())
}

fn written(
    agent: &Agent,
    argument: &Argument,
    folder: &Path,
    files: &RunFolder,
) -> Result<OsString, Failure> {
    let mut text = OsString::from(argument.flag);
    let value: OsString = match &argument.value {
        None => return Ok(text),
        Some(ArgumentValue::Text(value)) => value.into(),
        Some(ArgumentValue::File(file)) => files.path().join(file.file_name()).into(),
        Some(ArgumentValue::Folder(template)) => {
            folder.join(resolve(agent, "add_dirs", template)?).into()
        }
    };
    text.push("=");
    text.push(value);
    Ok(text)
}

pub(super) fn environment(
    agent: &Agent,
    plan: &LaunchPlan,
) -> Result<Vec<(OsString, OsString)>, Failure> {
    let mut variables = Vec::with_capacity(plan.environment.len());
    for variable in &plan.environment {
        let value = match &variable.source {
            VariableSource::Inherited => env::var_os(&variable.name),
            VariableSource::Fixed(value) => Some(value.into()),
            VariableSource::Agent(template) => {
                Some(resolve(agent, &format!("env.{}", variable.name), template)?.into())
            }
        };
        variables.extend(value.map(|value| (OsString::from(&variable.name), value)));
    }
    Ok(variables)
}

/// The values that an agent's servers get from our environment, or under a name like `TOKEN`: they are nobody's to tell.
pub(super) fn secrets(agent: &Agent) -> Vec<Secret> {
    let home = dirs::home_dir();
    let home = home.as_deref().and_then(Path::to_str);
    let values = agent.servers.iter().flat_map(|server| match &server.launch {
        ServerLaunch::Stdio { env, .. } => env.iter().collect::<Vec<_>>(),
        ServerLaunch::Http { headers, .. } => headers.iter().collect(),
        ServerLaunch::Shared => Vec::new(),
    });
    values
        .filter(|(name, template)| !template.variables().is_empty() || Secret::is_named_by(name))
        .filter_map(|(name, template)| {
            let value = template.resolve(|name| env::var(name).ok(), home).ok()?;
            Secret::new(name, value)
        })
        .collect()
}

fn resolve(agent: &Agent, field: &str, template: &Template) -> Result<String, Failure> {
    let home = dirs::home_dir();
    let home = home.as_deref().and_then(Path::to_str);
    template.resolve(|name| env::var(name).ok(), home).map_err(|error| {
        let UnsetVariable { name } = &error;
        let what = format!(
            "`{field}` of agent `{}` needs the variable `{name}`, which is not set",
            agent.name
        );
        let help = format!(
            "set it where Adjutant is started, or write `${{{name}:-a default}}` in {}",
            agent.file.display()
        );
        Failure::new(Code::SpawnFailed, what, help)
    })
}

fn bad_folder(agent: &Agent, written: &str, why: &str) -> Failure {
    let what =
        format!("the working folder `{written}` of agent `{}` cannot be used: {why}", agent.name);
    Failure::new(
        Code::SpawnFailed,
        what,
        format!("create it, or change `cwd` in {}", agent.file.display()),
    )
}
