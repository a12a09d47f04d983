//! Moves files and trees over a byte stream, verified.
