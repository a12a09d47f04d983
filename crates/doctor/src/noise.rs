//! What this host does to time: how late its timers are, how long a packet waits for the process that
//! reads it, how often and for how long nothing runs at all.
//!
//! It is measured with the waits that farhaul's own driver uses, on this host alone: what an interface
//! and its driver add shows only as far as `ethtool` tells of it.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farhaul_base::Rng;
use farhaul_udp::{Options, RECEIVE_SLOT, ReceiveSlots, UdpSocket, Waker, precise_sleep};
use serde::{Deserialize, Serialize};

use crate::Root;
use crate::host::default_interface;

/// What is late by so much is a stall and no timer.
pub const STALL_FROM: Duration = Duration::from_millis(1);
/// The times that are slept; a stall is found within the longest of them.
const SHORTEST_SLEEP_US: u64 = 50;
const LONGEST_SLEEP_US: u64 = 250;
/// The times between the datagrams whose readers' waking is measured: each finds the reader asleep.
const SHORTEST_GAP_US: u64 = 300;
const LONGEST_GAP_US: u64 = 1_500;
/// Packets of 1500 bytes that receive offload hands over together.
const OFFLOADED: u32 = 44;
/// The quantiles that are told, beside the longest.
const SHARES: [f64; 6] = [0.0, 0.25, 0.5, 0.9, 0.99, 0.999];
/// Fewer samples than this tell nothing of a distribution.
const LEAST_SAMPLES: usize = 100;

/// A host's noise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Noise {
    /// How long was measured, seconds.
    pub seconds: f64,
    /// By how much timers were late, those left out that a stall kept.
    pub timer: Times,
    /// From a datagram's arrival, as the kernel stamps it, to a process's reading it, that slept; those
    /// left out that a stall kept.
    pub wake: Times,
    /// Stalls of [`STALL_FROM`] or longer, and how long they were.
    pub stall: Times,
    /// Mean time from one to the next, seconds; none: there were none.
    pub stall_every_s: Option<f64>,
    /// Packets that receive offload hands over together; 1 without it.
    pub batch: u32,
    /// How long the interface of the default route gathers packets, as `ethtool -c` says, microseconds.
    pub coalesce_us: Option<u32>,
}

/// Times that were measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Their quantiles: shares in ascending order, the last being 1, and nanoseconds.
    pub quantiles: Vec<(f64, u64)>,
}

impl Times {
    fn of(mut times: Vec<u64>) -> Times {
        times.sort_unstable();
        let count = times.len();
        let at = |share: f64| times[((share * count as f64) as usize).min(count - 1)];
        let Some(&longest) = times.last() else { return Times::default() };
        // A quantile that less than one sample lies beyond is the longest.
        let told = SHARES.into_iter().filter(|share| count as f64 * (1.0 - share) >= 1.0);
        let mut quantiles: Vec<(f64, u64)> = told.map(|share| (share, at(share))).collect();
        quantiles.push((1.0, longest));
        Times { count: count as u64, quantiles }
    }
}

/// Measures this host's noise for `time`; `progress` is told what is measured, and false ends it.
/// `None`: it was ended.
///
/// # Errors
/// Those of the system when a socket or a thread is made; that `time` is too short to tell anything.
pub fn measure(
    time: Duration,
    root: &Root,
    progress: &(dyn Fn(&'static str) -> bool + Sync),
) -> io::Result<Option<Noise>> {
    let socket = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), &Options::default());
    let begun = Instant::now();
    let receiver = socket()?;
    if !progress("timers") {
        return Ok(None);
    }
    let Some(late) = on_a_thread(|| timers(&receiver, time / 2, progress))? else {
        return Ok(None);
    };
    let watched = begun.elapsed();
    if !progress("waking") {
        return Ok(None);
    }
    let Some(woken) = wakes(&receiver, &socket()?, time / 2, progress)? else { return Ok(None) };
    let (stalls, late): (Vec<u64>, Vec<u64>) = late.into_iter().partition(|ns| is_stall(*ns));
    let woken: Vec<u64> = woken.into_iter().filter(|ns| !is_stall(*ns)).collect();
    if late.len().min(woken.len()) < LEAST_SAMPLES {
        let message = format!("{time:?} is too short to measure this host: take longer");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let every = (!stalls.is_empty()).then(|| watched.as_secs_f64() / stalls.len() as f64);
    Ok(Some(Noise {
        seconds: begun.elapsed().as_secs_f64(),
        timer: Times::of(late),
        wake: Times::of(woken),
        stall: Times::of(stalls),
        stall_every_s: every,
        batch: if receiver.receive_offload() { OFFLOADED } else { 1 },
        coalesce_us: default_interface(root).and_then(|name| coalescing(root, &name)),
    }))
}

fn is_stall(ns: u64) -> bool {
    ns >= STALL_FROM.as_nanos() as u64
}

/// A thread has timers of its own precision.
fn on_a_thread<T: Send>(task: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("farhaul-noise".into());
        let panicked = |_| io::Error::other("the measuring thread panicked");
        thread.spawn_scoped(scope, task)?.join().map_err(panicked)?
    })
}

/// By how many nanoseconds each of many sleeps was too long.
fn timers(
    socket: &UdpSocket,
    time: Duration,
    go_on: &(dyn Fn(&'static str) -> bool + Sync),
) -> io::Result<Option<Vec<u64>>> {
    precise_sleep();
    let waker = Waker::new()?;
    let (begun, mut rng, mut late) = (Instant::now(), Rng::new(1), Vec::new());
    while begun.elapsed() < time {
        let span = SHORTEST_SLEEP_US + rng.below(LONGEST_SLEEP_US - SHORTEST_SLEEP_US);
        let asked = Duration::from_micros(span);
        let from = Instant::now();
        socket.wait(&waker, Some(asked))?;
        // A signal may have ended it early.
        if let Some(beyond) = from.elapsed().checked_sub(asked) {
            late.push(beyond.as_nanos() as u64);
        }
        if !go_on("timers") {
            return Ok(None);
        }
    }
    Ok(Some(late))
}

/// How many nanoseconds after its arrival each of many datagrams was read.
fn wakes(
    receiver: &UdpSocket,
    sender: &UdpSocket,
    time: Duration,
    go_on: &(dyn Fn(&'static str) -> bool + Sync),
) -> io::Result<Option<Vec<u64>>> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("farhaul-noise".into());
        thread.spawn_scoped(scope, || {
            let mut rng = Rng::new(2);
            while !over.load(Ordering::Relaxed) {
                let gap = SHORTEST_GAP_US + rng.below(LONGEST_GAP_US - SHORTEST_GAP_US);
                std::thread::sleep(Duration::from_micros(gap));
                sender.send(receiver.local_addr(), 1, &[IoSlice::new(b"?"), IoSlice::new(b"")]);
            }
        })?;
        let (begun, mut ages) = (Instant::now(), Vec::new());
        let (mut slots, mut buffer) = (ReceiveSlots::new(), vec![0; RECEIVE_SLOT]);
        let mut received = Vec::new();
        let mut result = Ok(());
        while result.is_ok() && begun.elapsed() < time && go_on("waking") {
            received.clear();
            result = receiver.wait_arrival(Duration::from_millis(20)).and_then(|()| {
                let mut buffers = [IoSliceMut::new(&mut buffer)];
                match receiver.receive(&mut slots, &mut buffers, &mut received) {
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
                    _ => Ok(()),
                }
            });
            ages.extend(received.iter().map(|one| one.age.as_nanos() as u64));
        }
        over.store(true, Ordering::Relaxed);
        let stopped = begun.elapsed() < time;
        result.map(|()| (!stopped).then_some(ages))
    })
}

/// How long an interface gathers what arrives, as far as `ethtool` knows.
fn coalescing(root: &Root, interface: &str) -> Option<u32> {
    let text = root.run("ethtool", &["-c", interface])?;
    let value = text.lines().find_map(|line| line.trim().strip_prefix("rx-usecs:"))?;
    value.trim().parse().ok().filter(|us| *us > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_ascend_and_end_with_the_longest() {
        let times = Times::of((0..1_000).rev().collect());
        let expected =
            [(0.0, 0), (0.25, 250), (0.5, 500), (0.9, 900), (0.99, 990), (0.999, 999), (1.0, 999)];
        assert_eq!((times.count, times.quantiles), (1_000, expected.to_vec()));
        // Of few samples the rare ones are not known.
        let few = Times::of(vec![3, 1, 2]).quantiles;
        assert_eq!(few, [(0.0, 1), (0.25, 1), (0.5, 2), (1.0, 3)]);
        assert_eq!(Times::of(Vec::new()), Times::default());
    }

    #[test]
    fn a_host_is_measured() {
        let noise = measure(Duration::from_secs(2), &Root::system(), &|_| true);
        let noise = noise.expect("sockets").expect("not ended");
        for times in [&noise.timer, &noise.wake] {
            assert!(times.count >= LEAST_SAMPLES as u64, "{noise:?}");
            assert!(times.quantiles.is_sorted(), "{noise:?}");
            let (share, longest) = *times.quantiles.last().expect("samples");
            assert!(share == 1.0 && longest < STALL_FROM.as_nanos() as u64, "{noise:?}");
        }
        assert_eq!(noise.stall.count == 0, noise.stall_every_s.is_none());
        let ended = measure(Duration::from_secs(60), &Root::system(), &|_| false);
        assert_eq!(ended.expect("sockets"), None);
    }

    #[test]
    fn what_ethtool_says_of_coalescing() {
        let text =
            "Coalesce parameters for eth0:\nAdaptive RX: off\n\nrx-usecs: 50\nrx-frames: 0\n";
        let programs = [("ethtool -c eth0".to_owned(), text.to_owned())];
        let root = Root::recorded("/nowhere", programs.into_iter().collect());
        assert_eq!(coalescing(&root, "eth0"), Some(50));
        assert_eq!(coalescing(&root, "eth1"), None);
    }
}
