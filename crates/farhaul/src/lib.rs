//! The UDT transport on real sockets, blocking and tokio.
