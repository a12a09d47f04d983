//! Which ports somebody listens at.

use std::fs;

/// Socket states of the tables in `/proc/net`: a UDP socket that is not connected, a TCP socket that
/// listens.
const OPEN: [&str; 2] = ["07", "0A"];

/// Whether a socket of the calling thread's namespace takes what comes to `port`, by UDP or TCP.
pub fn listens(port: u16) -> bool {
    ["udp", "udp6", "tcp", "tcp6"].iter().any(|table| {
        // Where there is no IPv6 there are no tables of it.
        let text = fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
        is_open(&text, port)
    })
}

fn is_open(table: &str, port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().is_some_and(|local| local.ends_with(&suffix));
        local && fields.nth(1).is_some_and(|state| OPEN.contains(&state))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_ports_are_found() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n \
                     0: 0100007F:1F90 00000000:0000 0A 00000000:00000000\n \
                     1: 0200007F:2328 0100007F:1F90 01 00000000:00000000\n";
        assert!(is_open(table, 0x1f90));
        // A connection, somebody else's port, nothing at all.
        assert!(!is_open(table, 0x2328) && !is_open(table, 80) && !is_open("", 80));
    }

    #[test]
    fn the_kernels_tables_are_understood() {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(listens(tcp.local_addr().unwrap().port()));
        assert!(listens(udp.local_addr().unwrap().port()));
    }
}
