//! Prober and responder on real sockets.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use farhaul_base::Time;
use farhaul_udp::{
    MAX_SEGMENTS, MAX_SEND, Options, RECEIVE_SLOT, ReceiveSlots, Received, UdpSocket, precise_sleep,
};
use rustix::net::sockopt;

use super::{PathReport, ProbeConfig, Prober, Responder, Secret};

/// Receive buffers in one call.
const SLOTS: usize = 8;
/// The longest wait, so that a responder notices that it is to end.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// How long the kernel may have no room to send.
const ROOM_WITHIN: Duration = Duration::from_secs(2);
/// The longest that a datagram is believed to have lain in the socket; older stamps come from a clock
/// that was set.
const OLDEST: Duration = Duration::from_secs(1);

/// Why a path was not measured.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The system refused a socket, or something with it.
    #[error("cannot use a UDP socket: {0}")]
    Socket(#[from] io::Error),
    /// The system has no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
    /// The user did not want to wait.
    #[error("interrupted")]
    Stopped,
}

/// A socket whose packets are never fragmented, not even where the kernel knows a smaller MTU: what
/// is too large is lost, which is what the search for the MTU looks for.
///
/// # Errors
/// What the system says of socket, address and options.
pub fn bind(addr: SocketAddr) -> io::Result<UdpSocket> {
    bind_with(addr, &Options::default())
}

fn bind_with(addr: SocketAddr, options: &Options) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(addr, options)?;
    set_whole(&socket, true)?;
    Ok(socket)
}

/// Whether packets that are too large are lost; else the kernel cuts them, as it does those of
/// transfers, once it knows.
fn set_whole(socket: &UdpSocket, whole: bool) -> io::Result<()> {
    use sockopt::{Ipv4PathMtuDiscovery as V4, Ipv6PathMtuDiscovery as V6};
    sockopt::set_ip_mtu_discover(socket, if whole { V4::PROBE } else { V4::WANT })?;
    if socket.local_addr().is_ipv6() {
        sockopt::set_ipv6_mtu_discover(socket, if whole { V6::PROBE } else { V6::WANT })?;
    }
    Ok(())
}

/// Measures the path to a responder at `to`. Takes some 5 to 15 s; tells `progress` what is measured
/// whenever that changes, and stops when that returns `false`.
///
/// # Errors
/// No socket can be had. That no answer comes is none: the report says so.
pub fn probe_path(
    to: SocketAddr,
    secret: &Secret,
    mut config: ProbeConfig,
    progress: &mut dyn FnMut(&'static str) -> bool,
) -> Result<PathReport, ProbeError> {
    let v4 = to.ip().to_canonical().is_ipv4();
    let any: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = bind((any, 0).into())?;
    config.overhead = if v4 { 28 } else { 48 };
    let session = getrandom::u64().map_err(|error| ProbeError::Random(error.to_string()))?;
    let to = farhaul_udp::canonical(to);
    precise_sleep();
    let clock = Clock::start();
    let mut prober = Prober::new(config, secret.clone(), session, clock.now());
    let (mut inbox, mut outbox) = (Inbox::new(), Outbox::default());
    let (mut datagram, mut must_be_whole) = (Vec::new(), true);
    loop {
        while prober.poll(clock.now(), &mut datagram) {
            let (together, whole) = prober.manner();
            if whole != must_be_whole {
                outbox.flush(&socket)?;
                set_whole(&socket, whole)?;
                must_be_whole = whole;
            }
            outbox.put(&socket, to, &datagram, together)?;
        }
        outbox.flush(&socket)?;
        if !progress(prober.progress()) {
            return Err(ProbeError::Stopped);
        }
        let Some(timeout) = prober.next_timeout() else { break };
        wait(&socket, timeout - clock.now())?;
        inbox.receive(&socket, &clock, |from, arrived, bytes| {
            if from == to {
                prober.handle(arrived, bytes);
            }
            Ok(())
        })?;
    }
    Ok(prober.report().cloned().unwrap_or_default())
}

/// Answers probers at `socket`, which is of [`bind`], as long as `goes_on` says so.
///
/// # Errors
/// The socket fails.
pub fn respond(
    socket: &UdpSocket,
    responder: &mut Responder,
    goes_on: impl Fn() -> bool,
) -> io::Result<()> {
    precise_sleep();
    let clock = Clock::start();
    let (mut inbox, mut outbox) = (Inbox::new(), Outbox::default());
    let mut answer = Vec::new();
    while goes_on() {
        wait(socket, LONGEST_WAIT)?;
        // Read after what is in the socket was read, it would count what is not yet due.
        responder.set_dropped(socket.dropped());
        inbox.receive(socket, &clock, |from, arrived, bytes| {
            if let Some(together) = responder.handle(arrived, clock.now(), from, bytes, &mut answer)
            {
                outbox.put(socket, from, &answer, together)?;
            }
            Ok(())
        })?;
        outbox.flush(socket)?;
    }
    Ok(())
}

fn wait(socket: &UdpSocket, longest: Duration) -> io::Result<()> {
    if longest.is_zero() { Ok(()) } else { socket.wait_arrival(longest.min(LONGEST_WAIT)) }
}

/// Wall-clock time that only rises: read once, then counted by the monotonic clock.
struct Clock {
    origin: Instant,
    wall: Time,
}

impl Clock {
    fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { origin: Instant::now(), wall: Time::ZERO + wall }
    }

    fn now(&self) -> Time {
        self.wall + self.origin.elapsed()
    }
}

/// Receive buffers, reused.
struct Inbox {
    slots: ReceiveSlots,
    buffers: Vec<Vec<u8>>,
    received: Vec<Received>,
}

impl Inbox {
    fn new() -> Self {
        let buffers = (0..SLOTS).map(|_| vec![0; RECEIVE_SLOT]).collect();
        Inbox { slots: ReceiveSlots::new(), buffers, received: Vec::new() }
    }

    /// Takes what has come, datagram by datagram: from whom, and when it arrived.
    fn receive(
        &mut self,
        socket: &UdpSocket,
        clock: &Clock,
        mut take: impl FnMut(SocketAddr, Time, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.received.clear();
        let mut buffers: Vec<IoSliceMut<'_>> =
            self.buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
        match socket.receive(&mut self.slots, &mut buffers, &mut self.received) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            // An ICMP message about a peer that does not listen says nothing about the others.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(()),
            result => result?,
        }
        let now = clock.now();
        for (received, buffer) in self.received.iter().zip(&self.buffers) {
            let age = if received.age < OLDEST { received.age } else { Duration::ZERO };
            let arrived = Time::ZERO + (now - Time::ZERO).saturating_sub(age);
            for datagram in buffer[..received.len].chunks(received.segment.max(1)) {
                take(received.from, arrived, datagram)?;
            }
        }
        Ok(())
    }
}

/// Datagrams of one size to one address, which one call sends.
#[derive(Default)]
struct Outbox {
    to: Option<SocketAddr>,
    segment: usize,
    bytes: Vec<u8>,
}

impl Outbox {
    /// Sends what waits if the datagram cannot leave together with it, `together` at most.
    fn put(
        &mut self,
        socket: &UdpSocket,
        to: SocketAddr,
        datagram: &[u8],
        together: u32,
    ) -> io::Result<()> {
        let most = MAX_SEGMENTS.min(together.max(1) as usize);
        let fits = self.to == Some(to)
            && self.segment == datagram.len()
            && self.bytes.len() + datagram.len() <= MAX_SEND
            && self.bytes.len() < most * self.segment;
        if !fits {
            self.flush(socket)?;
            (self.to, self.segment) = (Some(to), datagram.len());
        }
        self.bytes.extend_from_slice(datagram);
        Ok(())
    }

    /// Sends what waits. What the network refuses is lost, as it would be further on.
    fn flush(&mut self, socket: &UdpSocket) -> io::Result<()> {
        let Some(to) = self.to.filter(|_| !self.bytes.is_empty()) else { return Ok(()) };
        let slices: Vec<IoSlice<'_>> = self
            .bytes
            .chunks(self.segment)
            .flat_map(|datagram| [IoSlice::new(&[]), IoSlice::new(datagram)])
            .collect();
        let (mut rest, began) = (&slices[..], Instant::now());
        while !rest.is_empty() {
            let sent = socket.send(to, self.segment, rest).datagrams;
            rest = &rest[(2 * sent).min(rest.len())..];
            if sent == 0 {
                if began.elapsed() > ROOM_WITHIN {
                    return Err(io::Error::new(
                        ErrorKind::TimedOut,
                        "the kernel takes nothing to send",
                    ));
                }
                // It returns at an arrival, too, which is not taken here.
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        self.bytes.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::super::Reach;
    use super::*;

    /// What depends on the machine's speed is not looked at.
    #[test]
    fn a_path_within_this_host() {
        let secret = Secret::new(b"0123456789abcdef").unwrap();
        let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (to, stop) = (socket.local_addr(), AtomicBool::new(false));
        let config = ProbeConfig {
            pings: 50,
            ping_interval: Duration::from_micros(500),
            ..ProbeConfig::default()
        };
        let mut told = Vec::new();
        let report = thread::scope(|scope| {
            scope.spawn(|| {
                let mut responder = Responder::new(secret.clone());
                respond(&socket, &mut responder, || !stop.load(Ordering::Relaxed)).unwrap();
                assert!(responder.seen() >= 50);
            });
            let report = probe_path(to, &secret, config, &mut |what| {
                told.push(what);
                true
            });
            stop.store(true, Ordering::Relaxed);
            report.unwrap()
        });
        assert_eq!(report.reach, Reach::Both);
        assert_eq!((report.forward.sent, report.forward.mtu), (50, Some(9000)));
        assert!(report.forward.capacity.is_some(), "{report:?}");
        // One host has one clock.
        assert!(report.clock_offset_ms.unwrap().abs() <= report.clock_error_ms.unwrap() + 0.1);
        told.dedup();
        assert_eq!(told.first(), Some(&"asking for an answer"));
        assert_eq!(told.last(), Some(&"done"));
    }

    /// A socket with room for a few packets drops what comes at once, however busy its reader: that is no
    /// loss of the path, and its capacity is no less for it.
    #[test]
    fn a_receiver_with_a_small_buffer_is_no_shaper() {
        let secret = Secret::new(b"0123456789abcdef").unwrap();
        let small = Options { receive_buffer: 16 << 10, ..Options::default() };
        let socket = bind_with("127.0.0.1:0".parse().unwrap(), &small).unwrap();
        let (to, stop) = (socket.local_addr(), AtomicBool::new(false));
        let report = thread::scope(|scope| {
            scope.spawn(|| {
                let mut responder = Responder::new(secret.clone());
                respond(&socket, &mut responder, || !stop.load(Ordering::Relaxed)).unwrap();
            });
            let config = ProbeConfig { pings: 100, ..ProbeConfig::default() };
            let report = probe_path(to, &secret, config, &mut |_| true);
            stop.store(true, Ordering::Relaxed);
            report.unwrap()
        });
        let way = report.forward;
        assert!(way.capacity.is_none() || way.capacity_is_least, "{report:?}");
        if let Some(load) = report.load {
            // What the host's network backlog drops is counted elsewhere.
            assert!(load.dropped > 0 && load.loss() < 0.01, "{report:?}");
        }
        let told = crate::advise(&crate::HostReport::default(), None, Some(&report));
        assert!(told.stages.iter().all(|stage| stage.kind != crate::StageKind::Path), "{told:?}");
    }

    #[test]
    fn whoever_does_not_want_to_wait_need_not() {
        let secret = Secret::new(b"0123456789abcdef").unwrap();
        let silent = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let stopped =
            probe_path(silent.local_addr(), &secret, ProbeConfig::default(), &mut |_| false);
        assert!(matches!(stopped, Err(ProbeError::Stopped)));
    }
}
