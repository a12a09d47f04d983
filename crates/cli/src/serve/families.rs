//! What a server counts.

use super::metrics::{Family, Kind};

const PEER: &[&str] = &["client", "export"];

/// The program's version, as a label.
pub const BUILD: Family = Family {
    name: "farhaul_build",
    kind: Kind::Info,
    unit: "",
    help: "The program that runs.",
    labels: &["version"],
};
/// When the process began, seconds since 1970.
pub const STARTED: Family = Family {
    name: "farhaul_start_time_seconds",
    kind: Kind::Gauge,
    unit: "seconds",
    help: "When the server began, since 1970.",
    labels: &[],
};
/// Sessions that go on.
pub const ACTIVE: Family = Family {
    name: "farhaul_active_sessions",
    kind: Kind::Gauge,
    unit: "",
    help: "Sessions that go on.",
    labels: PEER,
};
/// Sessions that have ended; `outcome` is done, partly, failed, refused or interrupted.
pub const SESSIONS: Family = Family {
    name: "farhaul_sessions",
    kind: Kind::Counter,
    unit: "",
    help: "Sessions that have ended, by how.",
    labels: &["client", "export", "outcome"],
};
/// Contents of files that came in.
pub const RECEIVED: Family = Family {
    name: "farhaul_received_bytes",
    kind: Kind::Counter,
    unit: "bytes",
    help: "Contents of files that clients have left here.",
    labels: PEER,
};
/// Contents of files that went out.
pub const SENT: Family = Family {
    name: "farhaul_sent_bytes",
    kind: Kind::Counter,
    unit: "bytes",
    help: "Contents of files that clients have fetched.",
    labels: PEER,
};
/// Files that were moved; `direction` is in or out.
pub const FILES: Family = Family {
    name: "farhaul_files",
    kind: Kind::Counter,
    unit: "",
    help: "Files that were moved whole.",
    labels: &["client", "export", "direction"],
};
/// Files that could not be moved.
pub const FAILED_FILES: Family = Family {
    name: "farhaul_failed_files",
    kind: Kind::Counter,
    unit: "",
    help: "Files that could not be moved.",
    labels: PEER,
};
/// Files whose contents were not what they should be.
pub const UNVERIFIED: Family = Family {
    name: "farhaul_verification_failures",
    kind: Kind::Counter,
    unit: "",
    help: "Files that arrived with other contents than they were sent with.",
    labels: PEER,
};
/// Connections that did not come to a session; `reason` is key, limit, full, protocol or timeout.
pub const REFUSED: Family = Family {
    name: "farhaul_refused_connections",
    kind: Kind::Counter,
    unit: "",
    help: "Connections that were refused, by why.",
    labels: &["reason"],
};
/// Packets of sessions that their clients had not sent.
pub const FORGED: Family = Family {
    name: "farhaul_forged_packets",
    kind: Kind::Counter,
    unit: "",
    help: "Control packets with a client's address that the client had not sent; they changed nothing.",
    labels: PEER,
};
/// Newcomers that came to nothing before they had shown who they are.
pub const UNFINISHED: Family = Family {
    name: "farhaul_unfinished_handshakes",
    kind: Kind::Counter,
    unit: "",
    help: "Connections that ended, or had to make way, before the client had shown who it is.",
    labels: &[],
};
/// Times that the configuration was read again; `outcome` is done or failed.
pub const RELOADS: Family = Family {
    name: "farhaul_config_reloads",
    kind: Kind::Counter,
    unit: "",
    help: "Times that the configuration was read again.",
    labels: &["outcome"],
};

/// All of them, in the order in which they are written.
pub const FAMILIES: &[&Family] = &[
    &BUILD,
    &STARTED,
    &ACTIVE,
    &SESSIONS,
    &RECEIVED,
    &SENT,
    &FILES,
    &FAILED_FILES,
    &UNVERIFIED,
    &REFUSED,
    &FORGED,
    &UNFINISHED,
    &RELOADS,
];
