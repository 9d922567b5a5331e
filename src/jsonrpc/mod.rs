//! JSON-RPC 2.0 on line streams: parsing messages, writing each as exactly one line, and the client role.
//!
//! Every line to a client, a server or `claude` is a [`Frame`]. A frame contains no raw CR or LF before its final LF,
//! so the content of a message cannot start a second message, even for readers that end lines at CR.

mod frame;
mod frame_writer;
mod message;
mod peer_message;
mod recover;
mod rpc_client;

pub use frame::LineJson;

pub(crate) use frame::{Frame, notification_value};
pub(crate) use frame_writer::FrameWriter;
pub(crate) use message::{Id, InvalidMessage, Message};
pub(crate) use peer_message::{PeerMessage, RpcError};
pub(crate) use recover::RecoveredNames;
pub(crate) use rpc_client::{
    FrameKind, FrameSink, FrameStream, Inbound, Incoming, OnProgress, RpcClient, RpcClientError,
    RpcRequest, SendError, StreamEnd,
};
