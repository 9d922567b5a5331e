//! Ways out of a sandbox: proxies on Unix sockets that decide what leaves it.
//!
//! Requests from inside are hostile input: they are read by a strict parser, and what goes out is built anew.

mod http_request;
mod model_credential;
mod model_proxy;
mod model_upstream;
mod proxy_connection;

pub use model_credential::ModelLogin;
pub use model_proxy::ModelProxy;
pub use model_upstream::ModelUpstream;
