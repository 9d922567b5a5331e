//! `adjutant matrix`: prints the matrix as a table, JSON or HTML.

use clap::Args;

use super::build::{Matrix, MatrixFilter};
use super::{page, table};
use crate::cli::command::{CliCommand, CommandAccess};
use crate::cli::exit_status::ExitStatus;
use crate::cli::output;
use crate::cli::permissions_view::PermissionsView;
use crate::config::Settings;

/// Show what every agent may use: servers, tools and built-in tools, each with its rule
///
/// Exit code 0; 2 if an agent or a server is not known.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  adjutant matrix --agent dev\n  adjutant matrix --html > matrix.html"
)]
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

impl CliCommand for MatrixArguments {
    fn access(&self) -> CommandAccess {
        CommandAccess::ReadsOnly
    }

    fn run(&self, settings: &Settings) -> ExitStatus {
        let rights = PermissionsView::load(settings);
        if let Err(reason) = &rights.rules {
            output::print_error(reason);
            return ExitStatus::Usage;
        }
        let filter = MatrixFilter { agents: &self.agent, servers: &self.server };
        let matrix = match Matrix::build_checked(settings, &rights, &filter) {
            Ok(matrix) => matrix,
            Err(reason) => {
                output::print_error(&reason);
                return ExitStatus::Usage;
            }
        };
        for note in &matrix.notes {
            output::print_message(format_args!("note: {note}"));
        }
        if self.json {
            output::print_json(&matrix);
        } else if self.html {
            output::print(page::to_html(&matrix));
        } else {
            output::print(table::to_text(&matrix));
        }
        ExitStatus::Success
    }
}
