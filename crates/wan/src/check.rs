//! Measures from outside how well this machine emulates: with packets that the kernel answers, by the clock of
//! the one who has sent them.
//!
//! Each measurement opens a [`TunPath`] of its own, so the process must have the right to ([`isolate`](crate::tun::isolate)).

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farhaul_link::{LinkConfig, QueueConfig, Rate};
use socket2::{Domain, Protocol, Socket, Type};

use crate::tun::{Namespace, Parameter, TunPath, TunPathConfig};

/// The mean error of a delay that the emulator stays below on a machine that keeps time.
pub const DELAY_ERROR_MEAN: Duration = Duration::from_micros(50);
/// The error of a delay that 99 packets in a hundred stay below.
pub const DELAY_ERROR_P99: Duration = Duration::from_micros(500);
/// The error of a rate that it stays below, as a share of the rate.
pub const RATE_ERROR: f64 = 0.01;
/// The share of a link's rate that TCP must reach for the link to count as carried: headers take 5%, and the
/// start of the flow some.
pub const CARRIED_SHARE: f64 = 0.9;

/// Between two probes of a delay: no two of them are under way in the same tick.
const PROBE_EVERY: Duration = Duration::from_millis(2);
/// The clock is looked at without sleeping for so long before an answer is due.
const AWAKE_BEFORE: Duration = Duration::from_micros(700);
/// A probe whose answer is later than this has none.
const GIVE_UP: Duration = Duration::from_millis(500);
/// Payload of the datagrams that measure a rate, and what they are as IP packets.
const DATAGRAM_BYTES: usize = 1_472;
const PACKET_BYTES: usize = DATAGRAM_BYTES + 28;
/// Datagrams that are sent in a row, and the longest pause between two rows.
const ROW: u64 = 32;
/// How far the sender of datagrams may be ahead of the link: its queue is never empty, nor the device's full.
const AHEAD: Duration = Duration::from_millis(20);
/// What TCP may have under way: beyond the bandwidth-delay product of all that is measured.
const TCP_BUFFERS: &str = "4096 131072 67108864";
/// TCP's delay, one way.
const TCP_DELAY: Duration = Duration::from_millis(5);
/// TCP begins so long before its goodput is measured.
const TCP_START: Duration = Duration::from_millis(700);
/// The largest number of processes' groups that may send an echo request: root's.
const PING_GROUPS: &str = "0 0";

/// How well a delay is kept, by round trips of echo requests, which the far kernel answers. A round trip has the delay
/// twice, so the error of a delay is half of its error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DelayCheck {
    /// The delay, one way.
    pub delay: Duration,
    /// Echoes that came back.
    pub echoes: usize,
    /// The mean of half the difference between the round trip and twice the delay, without its sign.
    pub mean_error: Duration,
    /// Its 99th percentile.
    pub p99_error: Duration,
    /// Its largest value.
    pub max_error: Duration,
}

/// How well a rate is kept, by datagrams that always wait for the link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateCheck {
    /// The link's rate.
    pub rate: Rate,
    /// What has arrived, as IP packets, bits/s.
    pub measured: f64,
}

/// What one flow of the kernel's TCP gets, and how well the emulator then keeps its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CapacityCheck {
    /// The links' rate; `None`: no limit.
    pub rate: Option<Rate>,
    /// What arrives at the reader, bits/s.
    pub goodput: f64,
    /// By how much packets missed their time, on average.
    pub mean_error: Duration,
    /// By how much 99 in a hundred missed it at most, to a quarter.
    pub p99_error: Duration,
    /// Whether the path was as asked.
    pub time_kept: bool,
}

impl DelayCheck {
    /// Whether the error is as small as is stated.
    pub fn passes(&self) -> bool {
        self.echoes > 0 && self.mean_error < DELAY_ERROR_MEAN && self.p99_error < DELAY_ERROR_P99
    }
}

impl RateCheck {
    /// The error as a share of the rate, above zero if too much has arrived.
    pub fn error(&self) -> f64 {
        self.measured / self.rate.bits_per_second() as f64 - 1.0
    }

    /// Whether it is as small as is stated.
    pub fn passes(&self) -> bool {
        self.error().abs() < RATE_ERROR
    }
}

impl CapacityCheck {
    /// Whether the flow got the link's rate, and time was kept.
    pub fn passes(&self) -> bool {
        let share = |rate: Rate| self.goodput / rate.bits_per_second() as f64;
        self.time_kept && self.rate.is_none_or(|rate| share(rate) >= CARRIED_SHARE)
    }
}

/// Measures round trips over a path that delays by `delay` one way, with `echoes` echo requests.
///
/// # Errors
/// If there can be no path, or no echo requests.
pub fn delay(delay: Duration, echoes: u16) -> io::Result<DelayCheck> {
    let link = LinkConfig { delay, ..LinkConfig::default() };
    let path = open(link, None)?;
    set(path.near(), "net.ipv4.ping_group_range", PING_GROUPS)?;
    let far = SocketAddr::from((path.far_addr(), 0));
    let mut errors = path.near().run(|| {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::ICMPV4))?;
        socket.set_nonblocking(true)?;
        socket.connect(&far.into())?;
        let errors = (0..echoes).map(|number| {
            thread::sleep(PROBE_EVERY);
            echo(&socket, number, delay * 2)
        });
        errors.collect::<io::Result<Vec<_>>>()
    })??;
    let mut errors: Vec<Duration> = errors.drain(..).flatten().collect();
    errors.sort_unstable();
    let count = errors.len();
    Ok(DelayCheck {
        delay,
        echoes: count,
        mean_error: errors.iter().sum::<Duration>() / count.max(1) as u32,
        p99_error: errors
            .get((count * 99).div_ceil(100).saturating_sub(1))
            .copied()
            .unwrap_or_default(),
        max_error: errors.last().copied().unwrap_or_default(),
    })
}

/// Half of what the round trip of one echo request differs from `round_trip`; none if there is no answer.
fn echo(socket: &Socket, number: u16, round_trip: Duration) -> io::Result<Option<Duration>> {
    // RFC 792: type 8, code 0, then checksum and identifier, which are the kernel's to write.
    let mut request = [0; 64];
    request[0] = 8;
    request[6..8].copy_from_slice(&number.to_be_bytes());
    let sent = Instant::now();
    socket.send(&request)?;
    thread::sleep(round_trip.saturating_sub(AWAKE_BEFORE));
    while sent.elapsed() < round_trip + GIVE_UP {
        let (mut reader, mut bytes) = (socket, [0; 128]);
        match reader.read(&mut bytes) {
            Ok(length) if length >= 8 && bytes[6..8] == number.to_be_bytes() => {
                return Ok(Some(sent.elapsed().abs_diff(round_trip) / 2));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Measures what passes a link of `rate` in `lasts`.
///
/// # Errors
/// If there can be no path.
pub fn rate(rate: Rate, lasts: Duration) -> io::Result<RateCheck> {
    let link =
        LinkConfig { rate: Some(rate), queue: QueueConfig::Unlimited, ..LinkConfig::default() };
    let path = open(link, None)?;
    let far = path.far().run(|| UdpSocket::bind((path.far_addr(), 0)))??;
    let target = far.local_addr()?;
    far.set_read_timeout(Some(GIVE_UP))?;
    let near = path.near().run(|| UdpSocket::bind((path.near_addr(), 0)))??;
    near.connect(target)?;
    let packet = Duration::from_secs_f64(PACKET_BYTES as f64 * 8.0 / rate.bits_per_second() as f64);
    let count = (lasts.as_secs_f64() / packet.as_secs_f64()).ceil() as u64;
    thread::scope(|scope| {
        let sender = scope.spawn(|| send_ahead(&near, count, packet));
        let received = receive_all(&far, count);
        sender.join().unwrap_or_else(|_| Err(io::Error::other("the sender panicked")))?;
        let (packets, took) = received?;
        let bits = (packets * PACKET_BYTES as u64 * 8) as f64;
        Ok(RateCheck { rate, measured: bits / took.as_secs_f64() })
    })
}

/// Sends numbered datagrams a little faster than the link takes them, `packet` for each.
fn send_ahead(socket: &UdpSocket, count: u64, packet: Duration) -> io::Result<()> {
    let began = Instant::now();
    let mut datagram = [0; DATAGRAM_BYTES];
    for number in 0..count {
        if number % ROW == 0 {
            let due = packet.mul_f64(number as f64).saturating_sub(AHEAD);
            thread::sleep(due.saturating_sub(began.elapsed()));
        }
        datagram[..8].copy_from_slice(&number.to_be_bytes());
        socket.send(&datagram)?;
    }
    Ok(())
}

/// How many datagrams followed the first one up to the last one that arrived, lost ones included, and the time
/// between the two.
fn receive_all(socket: &UdpSocket, count: u64) -> io::Result<(u64, Duration)> {
    let mut buffer = [0; DATAGRAM_BYTES];
    let (mut first, mut last) = (None, None);
    while last.is_none_or(|(number, _)| number + 1 < count) {
        match socket.recv(&mut buffer) {
            Ok(length) if length >= 8 => {
                let number = buffer.first_chunk().map_or(0, |number| u64::from_be_bytes(*number));
                let now = Instant::now();
                first = first.or(Some((number, now)));
                last = Some((number, now));
            }
            Ok(_) => {}
            // The rest is lost.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    match (first, last) {
        (Some((first, began)), Some((last, ended))) if last > first => {
            Ok((last - first, ended - began))
        }
        _ => Err(io::Error::new(io::ErrorKind::TimedOut, "no datagrams arrived")),
    }
}

/// Measures what one flow of the kernel's TCP gets over links of `rate`, for `lasts`.
///
/// # Errors
/// If there can be no path.
pub fn capacity(rate: Option<Rate>, lasts: Duration) -> io::Result<CapacityCheck> {
    let queue = match rate {
        Some(_) => QueueConfig::Bdp { rtt: TCP_DELAY * 2 },
        None => QueueConfig::Unlimited,
    };
    let path = open(LinkConfig { rate, delay: TCP_DELAY, queue, ..LinkConfig::default() }, rate)?;
    for side in [path.near(), path.far()] {
        set(side, "net.ipv4.tcp_rmem", TCP_BUFFERS)?;
        set(side, "net.ipv4.tcp_wmem", TCP_BUFFERS)?;
    }
    let listener = path.far().run(|| TcpListener::bind((path.far_addr(), 0)))??;
    let address = listener.local_addr()?;
    let stop = AtomicBool::new(false);
    let (received, took, timing) = thread::scope(|scope| {
        let sender = scope.spawn(|| -> io::Result<()> {
            let mut stream = path.near().run(|| TcpStream::connect(address))??;
            let data = vec![0; 256 << 10];
            while !stop.load(Ordering::Relaxed) {
                stream.write_all(&data)?;
            }
            Ok(())
        });
        let measured = receive_stream(&listener, lasts, || path.stats());
        stop.store(true, Ordering::Relaxed);
        // Of the connection that the reader has given up.
        let _ = sender.join();
        measured
    })?;
    Ok(CapacityCheck {
        rate,
        goodput: received as f64 * 8.0 / took.as_secs_f64(),
        mean_error: timing.timing.mean_error(),
        p99_error: timing.timing.quantile(0.99),
        time_kept: timing.time_kept(),
    })
}

/// Reads from the first connection: after some time for its start, the bytes that come within `lasts`, the time
/// that it was, and what the path has counted meanwhile.
fn receive_stream(
    listener: &TcpListener,
    lasts: Duration,
    stats: impl Fn() -> crate::tun::TunPathStats,
) -> io::Result<(u64, Duration, crate::DirectionStats)> {
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(GIVE_UP))?;
    let mut buffer = vec![0; 256 << 10];
    let accepted = Instant::now();
    while accepted.elapsed() < TCP_START {
        let _ = stream.read(&mut buffer)?;
    }
    let (began, before, mut bytes) = (Instant::now(), stats(), 0);
    while began.elapsed() < lasts {
        bytes += stream.read(&mut buffer)? as u64;
    }
    Ok((bytes, began.elapsed(), stats().forward.since(&before.forward)))
}

/// A path of two alike links.
fn open(link: LinkConfig, access_rate: Option<Rate>) -> io::Result<TunPath> {
    TunPath::open(TunPathConfig {
        forward: link.clone(),
        backward: link,
        access_rate,
        ..TunPathConfig::default()
    })
}

/// Sets a network parameter of the namespace.
fn set(namespace: &Namespace, name: &str, value: &str) -> io::Result<()> {
    let parameter: Parameter = format!("{name}={value}").parse().map_err(io::Error::other)?;
    let set = namespace.set_parameter(&parameter);
    set.map_err(|why| io::Error::other(format!("{parameter}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stated_decides() {
        let us = Duration::from_micros;
        let delay = DelayCheck {
            delay: us(1_000),
            echoes: 100,
            mean_error: us(49),
            p99_error: us(499),
            max_error: us(9_000),
        };
        assert!(delay.passes());
        assert!(!DelayCheck { mean_error: us(50), ..delay }.passes());
        assert!(!DelayCheck { p99_error: us(500), ..delay }.passes());
        assert!(!DelayCheck { echoes: 0, ..delay }.passes());
        let megabit = Rate::from_bits_per_second(1_000_000).unwrap();
        let rate = |measured| RateCheck { rate: megabit, measured };
        assert!(rate(0.991e6).passes() && rate(1.009e6).passes());
        assert!(!rate(0.989e6).passes() && !rate(1.011e6).passes());
        let capacity = CapacityCheck {
            rate: Some(megabit),
            goodput: 0.95e6,
            mean_error: us(5),
            p99_error: us(50),
            time_kept: true,
        };
        assert!(capacity.passes());
        assert!(!CapacityCheck { goodput: 0.8e6, ..capacity }.passes());
        assert!(!CapacityCheck { time_kept: false, ..capacity }.passes());
    }

    /// That something is measured: how well is for a quiet machine to say.
    #[test]
    fn a_delay_and_a_rate_are_measured() {
        let measured = match delay(Duration::from_millis(3), 20) {
            Ok(measured) => measured,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        assert!(measured.echoes > 0 && measured.mean_error <= measured.max_error, "{measured:?}");
        let tenth = Rate::from_bits_per_second(100_000_000).unwrap();
        let measured = rate(tenth, Duration::from_millis(100)).unwrap();
        // A busy machine makes it less, and nothing makes it much more.
        assert!(measured.measured > 0.0 && measured.error() < 0.5, "{measured:?}");
    }
}
