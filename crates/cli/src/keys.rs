//! Keys: the user's own, those that may connect to this host, those of known servers.
//!
//! | file | subject |
//! |---|---|
//! | `identity.rs` | the user's own key in its file |
//! | `allow_list.rs` | keys that may connect, by name |
//! | `known_servers.rs` | which key a server had when it was met |
//! | `strict.rs` | files that nobody else may have had their hands on |
//! | `store.rs` | files of lines that are changed whole |
//! | `command.rs` | `farhaul key` |

pub mod allow_list;
mod command;
pub mod identity;
pub mod known_servers;
pub mod store;
pub mod strict;

pub use command::{KeyCommand, run};
