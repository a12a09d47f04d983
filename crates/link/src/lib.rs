//! What a network path does to a packet: rate, delay, queue, loss, reordering, duplication, corruption.
