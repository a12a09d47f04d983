//! Congestion control: the interface and the laws, one file a law.
