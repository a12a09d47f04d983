//! What idle connections cost: `idle listen ADDR` and `idle connect ADDR COUNT SECONDS`.
//!
//! The connecting side opens COUNT connections from one port to one port, waits SECONDS, and prints
//! what it used meanwhile; the listening side does the same for itself when they have gone.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use farhaul::{Endpoint, Listener, Options};

fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["listen", addr] => listen(addr),
        ["connect", addr, count, seconds] => connect(addr, count, seconds),
        _ => Err(std::io::Error::other("usage: idle listen ADDR | connect ADDR COUNT SECONDS")),
    }
}

fn listen(addr: &str) -> std::io::Result<()> {
    let listener = Listener::bind(addr, &Options::new())?;
    println!("listening at {}", listener.local_addr());
    let first = listener.accept()?;
    let mut count = [0; 4];
    std::io::Read::read_exact(&mut &first, &mut count)?;
    let mut accepted = vec![first];
    for _ in 1..u32::from_le_bytes(count) {
        accepted.push(listener.accept()?);
    }
    std::io::Write::write_all(&mut &accepted[0], &[1])?;
    let before = Usage::now();
    // The peer's close is the end of the wait.
    std::io::Read::read(&mut &accepted[0], &mut [0])?;
    before.print("listening side", accepted.len());
    Ok(())
}

fn connect(addr: &str, count: &str, seconds: &str) -> std::io::Result<()> {
    let peer: SocketAddr = addr.parse().map_err(std::io::Error::other)?;
    let count: u32 = count.parse().map_err(std::io::Error::other)?;
    let seconds: f64 = seconds.parse().map_err(std::io::Error::other)?;
    let options = Options::new();
    let endpoint = Endpoint::bind(options_bind(peer), &options)?;
    let first = endpoint.connect(peer, &options)?;
    std::io::Write::write_all(&mut &first, &count.to_le_bytes())?;
    let mut connections = vec![first];
    for _ in 1..count {
        connections.push(endpoint.connect(peer, &options)?);
    }
    std::io::Read::read_exact(&mut &connections[0], &mut [0; 1])?;
    let before = Usage::now();
    std::thread::sleep(Duration::from_secs_f64(seconds));
    before.print("connecting side", connections.len());
    connections.swap_remove(0).close()
}

fn options_bind(peer: SocketAddr) -> SocketAddr {
    let any = if peer.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    any.parse().expect("a constant address")
}

struct Usage {
    at: Instant,
    cpu_ns: u64,
}

impl Usage {
    fn now() -> Self {
        Usage { at: Instant::now(), cpu_ns: cpu_ns() }
    }

    fn print(&self, who: &str, connections: usize) {
        let wall = self.at.elapsed();
        let cpu = Duration::from_nanos(cpu_ns() - self.cpu_ns);
        println!(
            "{who}: {connections} connections, {:.1} s, cpu {:.3} ms ({:.4}%), resident {:.1} MB",
            wall.as_secs_f64(),
            cpu.as_secs_f64() * 1e3,
            cpu.as_secs_f64() / wall.as_secs_f64() * 100.0,
            resident_kib() as f64 / 1024.0
        );
    }
}

/// Time on a processor of all threads: the scheduler's own account, in nanoseconds.
fn cpu_ns() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .sum()
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
