//! Conversion of a launch plan into a process specification: resolves variables and writes private
//! files.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, io};

use crate::catalog::{Agent, Template, UnsetVariable};
use crate::config::Settings;
use crate::outcome::{Code, Failure};
use crate::plan::{Argument, ArgumentValue, LaunchPlan, PlannedFile, VariableSource};
use crate::process::{ProcessSpec, SymlinkPolicy};
use crate::runs::RunDir;
use crate::store::read_bounded;
use crate::util::RunId;

const MAX_MEMORY_BYTES: u64 = 1 << 20;

/// Returns the names of all variables set in our environment.
pub(crate) fn present_variables() -> BTreeSet<String> {
    env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect()
}

/// Reads `memory.md` of an agent with `session: true`, at most 1 MiB.
pub(crate) fn read_memory(agent: &Agent) -> Result<Option<String>, Failure> {
    let Some(file) = agent.memory.as_ref().filter(|_| agent.session) else { return Ok(None) };
    let bytes = read_bounded(file, MAX_MEMORY_BYTES).map_err(|error| {
        let (name, file) = (&agent.name, file.display());
        let what = format!("the memory of `{name}` cannot be read: `{file}`: {error}");
        Failure::new(Code::AgentInvalid, what, "mend the file, or remove it")
    })?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Returns the working directory of an agent: its `cwd`, or the project's root.
///
/// Fails if it does not exist.
pub(crate) fn working_dir(agent: &Agent, settings: &Settings) -> Result<PathBuf, Failure> {
    let Some(template) = &agent.cwd else { return Ok(settings.root.clone()) };
    let written = resolve_template(agent, "cwd", template)?;
    let folder = settings.root.join(&written);
    let why = match folder.canonicalize() {
        Ok(folder) if folder.is_dir() => return Ok(folder),
        Ok(_) => "it is not a folder".to_owned(),
        Err(error) => error.to_string(),
    };
    let name = &agent.name;
    let what = format!("the working folder `{written}` of agent `{name}` cannot be used: {why}");
    let help = format!("create it, or change `cwd` in {}", agent.file.display());
    Err(Failure::new(Code::SpawnFailed, what, help))
}

/// Creates a private directory for the run's files: below `data/`, or in the temporary directory if
/// that fails.
pub(crate) fn create_run_dir(settings: &Settings, run: RunId) -> Result<RunDir, Failure> {
    let created = RunDir::create(&settings.data_dir(), run).or_else(|error| {
        tracing::warn!(%error, "`data/` cannot be written; the run's files go to the temporary folder");
        RunDir::create(&temporary_runs_dir(), run)
    });
    created.map_err(|error| {
        let message = format!("a private folder for the run cannot be made: {error}");
        Failure::new(Code::SpawnFailed, message, "look at the free space and the rights of `data/`")
    })
}

/// Returns the directory for files of runs if `data/` cannot be written.
pub(crate) fn temporary_runs_dir() -> PathBuf {
    env::temp_dir().join(format!("adjutant-{}", nix::unistd::Uid::effective()))
}

/// Writes the private files and returns the specification of the process.
pub(crate) fn process_spec(
    agent: &Agent,
    plan: &LaunchPlan,
    run: RunId,
    folder: PathBuf,
    files: &RunDir,
) -> Result<ProcessSpec, Failure> {
    write_private_files(plan, files).map_err(|error| {
        let what = format!("the private files of the run cannot be written: {error}");
        let help = "look at the free space and the rights of the temporary folder";
        Failure::new(Code::SpawnFailed, what, help)
    })?;
    let arguments = plan.arguments.iter();
    let arguments = arguments.map(|argument| argument_text(agent, argument, &folder, files));
    let arguments = arguments.collect::<Result<_, _>>()?;
    let environment = resolve_environment(agent, plan)?;
    Ok(ProcessSpec {
        label: agent.name.to_string(),
        run,
        program: plan.program.clone(),
        arguments,
        environment,
        working_dir: folder,
        symlinks: SymlinkPolicy::Refuse,
    })
}

fn write_private_files(plan: &LaunchPlan, files: &RunDir) -> io::Result<()> {
    files.write(PlannedFile::SystemPrompt.file_name(), plan.system_prompt.as_bytes())?;
    files.write(PlannedFile::Settings.file_name(), plan.settings.to_string().as_bytes())?;
    Ok(())
}

fn argument_text(
    agent: &Agent,
    argument: &Argument,
    folder: &Path,
    files: &RunDir,
) -> Result<OsString, Failure> {
    let mut text = OsString::from(argument.flag);
    let value: OsString = match &argument.value {
        None => return Ok(text),
        Some(ArgumentValue::Text(value)) => value.into(),
        Some(ArgumentValue::File(file)) => files.path().join(file.file_name()).into(),
        Some(ArgumentValue::Folder(template)) => {
            folder.join(resolve_template(agent, "add_dirs", template)?).into()
        }
    };
    text.push("=");
    text.push(value);
    Ok(text)
}

pub(crate) fn resolve_environment(
    agent: &Agent,
    plan: &LaunchPlan,
) -> Result<Vec<(OsString, OsString)>, Failure> {
    let mut variables = Vec::with_capacity(plan.environment.len());
    for variable in &plan.environment {
        let value = match &variable.source {
            VariableSource::Inherited => env::var_os(&variable.name),
            VariableSource::Fixed(value) => Some(value.into()),
            VariableSource::Agent(template) => {
                Some(resolve_template(agent, &format!("env.{}", variable.name), template)?.into())
            }
        };
        variables.extend(value.map(|value| (OsString::from(&variable.name), value)));
    }
    Ok(variables)
}

pub(crate) fn resolve_template(
    agent: &Agent,
    field: &str,
    template: &Template,
) -> Result<String, Failure> {
    resolve_variables(template).map_err(|UnsetVariable { name }| {
        let (agent, file) = (&agent.name, agent.file.display());
        let what =
            format!("`{field}` of agent `{agent}` needs the variable `{name}`, which is not set");
        let help = format!(
            "set it where Adjutant is started, or write `${{{name}:-a default}}` in {file}"
        );
        Failure::new(Code::SpawnFailed, what, help)
    })
}

/// Replaces the variables in a template by those of our environment, and `~` by our home directory.
pub(crate) fn resolve_variables(template: &Template) -> Result<String, UnsetVariable> {
    let home = dirs::home_dir();
    template.resolve(|name| env::var(name).ok(), home.as_deref().and_then(Path::to_str))
}
