//! The sans-IO UDT endpoint and connection.
//!
//! Time, randomness and datagrams enter as arguments; datagrams, deadlines and events leave as
//! values. An [`Endpoint`] holds the connections of one UDP port. After every call that changes
//! something, take what it wants to send ([`Endpoint::poll_transmit`]) until there is nothing
//! more, take the events ([`Endpoint::poll_event`]), and come back at
//! [`Endpoint::poll_timeout`] or with the next datagram.

#![forbid(unsafe_code)]

mod arrival;
mod config;
mod connection;
mod cookie;
mod endpoint;
mod frames;
mod handshake;
mod invitation;
mod loss_list;
mod pacer;
mod receive;
mod rtt;
mod secrets;
mod send;
mod stats;
mod tags;
mod transmit;

pub use config::{Config, ConfigError, Mode, Origins};
pub use connection::{CloseReason, Connection, Events, SendError};
pub use endpoint::{ConnectionId, Endpoint, EndpointCounters};
pub use frames::{Frames, Memory};
pub use handshake::ConnectError;
pub use invitation::Invitation;
pub use loss_list::LossList;
pub use receive::{Chunks, ReorderTolerance};
pub use stats::{Counters, Snapshot, Span, Stats};
pub use tags::TagKeys;
pub use transmit::Transmit;
