//! `adjutant trust SERVER`: accepts the current tool definitions of a server.

use clap::Args;

use crate::cli::{
    CliCommand, CommandError, CommandResult, ErrorCode, ExitStatus, output, store_unavailable,
};
use crate::config::Settings;
use crate::gateway::ToolPins;
use crate::util::nearest_names;

/// Accept the tools of an MCP server as it describes them now
///
/// The gateway remembers how a server described its tools when it first saw them. Tools that are
/// described otherwise later are reported, and withheld where the server's entry in .mcp.json says
/// `"pin": "strict"`, until this command accepts them. Exit code 0; 3 if no such server was seen.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  adjutant trust brave-search")]
pub(crate) struct TrustArguments {
    /// The server's name
    server: String,
}

impl CliCommand for TrustArguments {
    fn run(&self, settings: &Settings) -> CommandResult {
        let server = self.server.as_str();
        let pins = ToolPins::new(&settings.data_dir());
        let known = pins.servers().map_err(store_unavailable)?;
        let accepted = pins.accept_current(server).map_err(store_unavailable)?;
        if !known.iter().any(|name| name == server) {
            let message = format!("no tools of a server `{server}` were seen yet");
            let error = CommandError::new(ErrorCode::ServerNotFound, message);
            let near = nearest_names(server, known.iter().map(String::as_str));
            return Err(match near.first() {
                Some(near) => error.with_help(format_args!("did you mean `{near}`?")),
                None => error,
            });
        }
        if accepted.is_empty() {
            output::print_message(format_args!("nothing has changed in `{server}`"));
        }
        for tool in accepted {
            output::print(format_args!("{server}: {tool}"));
        }
        Ok(ExitStatus::Success)
    }
}
