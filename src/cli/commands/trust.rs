//! `adjutant trust SERVER`: accepts the current tool definitions of a server.

use clap::Args;

use crate::api::ServerObject;
use crate::cli::{
    CliCommand, CommandError, CommandReport, CommandResult, ErrorCode, JsonArgument,
    store_unavailable,
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

    #[command(flatten)]
    format: JsonArgument,
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
        let name = server.to_owned();
        let object =
            ServerObject { server: name, tools: Some(accepted.clone()), ..ServerObject::default() };
        let output = CommandReport::new(&object);
        let output = match accepted.is_empty() {
            true => output.message(format_args!("nothing has changed in `{server}`")),
            false => accepted
                .iter()
                .fold(output, |output, tool| output.data(format_args!("{server}: {tool}"))),
        };
        output.print(self.format)
    }
}
