//! Batched UDP sockets: segmentation and receive offload, arrival stamps. The crate with the system calls.
