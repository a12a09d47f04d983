//! Real-packet path emulation: a userspace UDP relay.
