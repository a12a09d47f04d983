//! The farhaul command.
