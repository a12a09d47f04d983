//! What control laws did over time, as qlog: the records, and how they lie in a file.
//!
//! A file is a JSON text sequence (RFC 7464): a record separator, a JSON text and a line feed, again
//! and again. The first text is the header of draft-ietf-quic-qlog-main-schema, version 0.3, which
//! is the one that viewers know; each of the others is an event of the namespace `farhaul`, with the
//! number of its connection as `group_id`.

mod record;
mod sequence;

pub use record::{
    Connection, Header, Lost, NAMES, Record, Role, Sample, StateChange, Trigger, Vantage,
};
pub use sequence::{Reader, SequenceError, Writer};
