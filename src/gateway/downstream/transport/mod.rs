//! Transports to downstream servers: stdio, HTTP+SSE, Streamable HTTP.

pub(crate) mod http;
mod http_post;
mod http_stream;
mod lines;
mod raw_http_client;
mod sse;
mod stdio;

pub(crate) use http::install_tls_provider;
pub(crate) use lines::LineStream;
pub(crate) use stdio::{ServerProcess, StdioCommand};
