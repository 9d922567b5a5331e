//! `adjutant trust SERVER`: accepts the current tool definitions of a server.

use clap::Args;

use crate::cli::command::{CliCommand, CommandAccess};
use crate::cli::exit_status::ExitStatus;
use crate::cli::output;
use crate::config::Settings;
use crate::gateway::ToolPins;
use crate::util::nearest_names;

/// Accept the tools of an MCP server as it describes them now
///
/// The gateway remembers how a server described its tools when it first saw them. Tools that are
/// described otherwise later are reported, and withheld where the server's entry in .mcp.json says
/// `"pin": "strict"`, until this command accepts them. Exit code 0; 1 if no such server was seen.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  adjutant trust brave-search")]
pub(crate) struct TrustArguments {
    /// The server's name
    server: String,
}

impl CliCommand for TrustArguments {
    fn access(&self) -> CommandAccess {
        CommandAccess::ActsOrChanges
    }

    fn run(&self, settings: &Settings) -> ExitStatus {
        let server = self.server.as_str();
        let pins = ToolPins::new(&settings.data_dir());
        let outcome = pins.servers().and_then(|known| Ok((known, pins.accept_current(server)?)));
        match outcome {
            Ok((known, accepted)) if !known.iter().any(|name| name == server) => {
                drop(accepted);
                let near = nearest_names(server, known.iter().map(String::as_str));
                let hint =
                    near.first().map(|near| format!("; is `{near}` meant?")).unwrap_or_default();
                output::print_error(format_args!(
                    "no tools of a server `{server}` were seen yet{hint}"
                ));
                ExitStatus::Failure
            }
            Ok((_, accepted)) if accepted.is_empty() => {
                output::print_message(format_args!("nothing has changed in `{server}`"));
                ExitStatus::Success
            }
            Ok((_, accepted)) => {
                for tool in accepted {
                    output::print(format_args!("{server}: {tool}"));
                }
                ExitStatus::Success
            }
            Err(error) => {
                output::print_error(error);
                ExitStatus::Usage
            }
        }
    }
}
