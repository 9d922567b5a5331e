//! The command: which agents and servers, and in which form.

use clap::Args;

use super::build::{Filter, Matrix};
use super::{page, table};
use crate::cli::exit::Exit;
use crate::cli::render;
use crate::cli::rights::Rights;
use crate::config::Settings;

/// What `matrix` may be told.
#[derive(Debug, Args)]
pub(crate) struct MatrixArguments {
    /// Only this agent; may be given several times
    #[arg(long, value_name = "NAME")]
    agent: Vec<String>,

    /// Only this server; may be given several times
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,

    /// Print it as JSON
    #[arg(long, conflicts_with = "html")]
    json: bool,

    /// Print it as a page that needs nothing else
    #[arg(long)]
    html: bool,
}

pub(crate) fn run(settings: &Settings, arguments: &MatrixArguments) -> Exit {
    let rights = Rights::load(settings);
    if let Err(reason) = &rights.rules {
        render::problem(reason);
        return Exit::Usage;
    }
    let filter = Filter { agents: &arguments.agent, servers: &arguments.server };
    let matrix = match Matrix::asked_for(settings, &rights, &filter) {
        Ok(matrix) => matrix,
        Err(reason) => {
            render::problem(&reason);
            return Exit::Usage;
        }
    };
    for note in &matrix.notes {
        render::talk(format_args!("note: {note}"));
    }
    if arguments.json {
        render::json(&matrix);
    } else if arguments.html {
        render::data(page::html(&matrix));
    } else {
        render::data(table::text(&matrix));
    }
    Exit::Success
}
