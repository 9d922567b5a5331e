//! `adjutant trust SERVER`.

use clap::Args;

use super::exit::Exit;
use super::render;
use crate::base::nearest;
use crate::config::Settings;
use crate::gateway::Pins;

/// Accept the tools of an MCP server as it describes them now
///
/// The gateway remembers how a server described its tools when it first saw them. Tools that are
/// described otherwise later are reported, and withheld where the server's entry in .mcp.json says
/// `"pin": "strict"`, until this command accepts them. Exit code 0; 1 if no such server was seen.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  adjutant trust brave-search")]
pub(super) struct TrustArguments {
    /// The server's name
    server: String,
}

pub(super) fn run(arguments: &TrustArguments, settings: &Settings) -> Exit {
    let server = arguments.server.as_str();
    let pins = Pins::new(&settings.data_dir());
    let outcome = pins.servers().and_then(|known| Ok((known, pins.trust(server)?)));
    match outcome {
        Ok((known, accepted)) if !known.iter().any(|name| name == server) => {
            drop(accepted);
            let near = nearest(server, known.iter().map(String::as_str));
            let hint = near.first().map(|near| format!("; is `{near}` meant?")).unwrap_or_default();
            render::problem(format_args!("no tools of a server `{server}` were seen yet{hint}"));
            Exit::Failure
        }
        Ok((_, accepted)) if accepted.is_empty() => {
            render::talk(format_args!("nothing has changed in `{server}`"));
            Exit::Success
        }
        Ok((_, accepted)) => {
            for tool in accepted {
                render::data(format_args!("{server}: {tool}"));
            }
            Exit::Success
        }
        Err(error) => {
            render::problem(error);
            Exit::Usage
        }
    }
}
