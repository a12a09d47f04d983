//! A source of constant bit rate that nothing holds back, on and off by a schedule.

use core::time::Duration;

use farhaul_base::Time;
use farhaul_link::Rate;

use crate::packet::{Content, Packet};
use crate::simulation::AgentId;

/// When a source sends, and how fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// From here on, until the next phase begins.
    pub start: Time,
    /// All headers included; none: silence.
    pub rate: Option<Rate>,
}

/// Sends packets evenly spaced to an agent that only counts them.
#[derive(Debug)]
pub struct CbrSource {
    own: AgentId,
    peer: AgentId,
    /// Bytes of a packet with all headers.
    packet_size: u32,
    /// In order of time.
    phases: Vec<Phase>,
    stop: Time,
    /// When the next packet is due, with fractions of a nanosecond, so that no rate drifts.
    next: Option<(Time, f64)>,
    phase: usize,
    /// Packets sent.
    pub sent: u64,
}

impl CbrSource {
    /// `phases` in order of time; `packet_size` in bytes with all headers.
    pub fn new(
        own: AgentId,
        peer: AgentId,
        packet_size: u32,
        phases: Vec<Phase>,
        stop: Time,
    ) -> Self {
        CbrSource { own, peer, packet_size, phases, stop, next: None, phase: 0, sent: 0 }
    }

    /// Sends what is due; returns when to come again.
    pub fn turn(&mut self, now: Time, send: &mut dyn FnMut(Packet)) -> Option<Time> {
        while self.phases.get(self.phase + 1).is_some_and(|next| next.start <= now) {
            self.phase += 1;
            self.next = None;
        }
        let phase = *self.phases.get(self.phase)?;
        if now >= self.stop {
            return None;
        }
        if now < phase.start {
            return Some(phase.start);
        }
        let ahead = self.phases.get(self.phase + 1).map(|next| next.start);
        let Some(rate) = phase.rate else { return ahead };
        let spacing = f64::from(self.packet_size) * 8e9 / rate.bits_per_second() as f64;
        let (mut at, mut fraction) = self.next.unwrap_or((phase.start, 0.0));
        while at <= now {
            let content = Content::Filler { bytes: self.packet_size, number: self.sent };
            self.sent += 1;
            send(Packet { from: self.own, to: self.peer, content });
            let step = spacing + fraction;
            at += Duration::from_nanos(step as u64);
            fraction = step.fract();
        }
        self.next = Some((at, fraction));
        Some(ahead.map_or(at, |next| next.min(at)))
    }
}

/// Counts what arrives, each packet once.
#[derive(Debug, Default)]
pub struct Counter {
    /// Bytes with all headers.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// A bit for each number that has come.
    seen: Vec<u64>,
}

impl Counter {
    /// Packet `number` of its source has come.
    pub fn receive(&mut self, number: u64, bytes: u32) {
        if self.has(number) {
            return;
        }
        let (word, bit) = place(number);
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        self.seen[word] |= bit;
        self.bytes += u64::from(bytes);
        self.packets += 1;
    }

    /// Whether packet `number` has come.
    pub fn has(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.seen.get(word).is_some_and(|bits| bits & bit != 0)
    }
}

/// Where the bit of a number is.
fn place(number: u64) -> (usize, u64) {
    ((number / 64) as usize, 1 << (number % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> Option<Rate> {
        Some(text.parse().unwrap())
    }

    /// Packets that were sent in each millisecond.
    fn run(mut source: CbrSource, milliseconds: u64) -> Vec<u32> {
        let mut sent = vec![0; milliseconds as usize];
        let mut due = Some(Time::ZERO);
        while let Some(now) = due.filter(|at| *at < Time::from_millis(milliseconds)) {
            let index = (now.as_nanos() / 1_000_000) as usize;
            due = source.turn(now, &mut |_| sent[index] += 1);
            assert!(due.is_none_or(|at| at > now));
        }
        sent
    }

    #[test]
    fn evenly_spaced_without_drift() {
        let phases = vec![Phase { start: Time::ZERO, rate: rate("70M") }];
        let source = CbrSource::new(AgentId(0), AgentId(1), 1500, phases, Time::from_secs(9));
        let sent = run(source, 3_000);
        // The last one is due at the very end.
        let total = sent.iter().sum::<u32>();
        assert!((17_500..=17_501).contains(&total), "70 Mb/s for three seconds: {total}");
        assert!(sent.iter().all(|n| (5..=6).contains(n)));
    }

    #[test]
    fn each_packet_counts_once() {
        let mut counter = Counter::default();
        for number in [0, 70, 1, 70, 0, 200] {
            counter.receive(number, 100);
        }
        assert_eq!((counter.packets, counter.bytes), (4, 400));
        assert!(counter.has(200) && !counter.has(2) && !counter.has(10_000));
    }

    #[test]
    fn phases_begin_on_time() {
        let phase = |ms, rate| Phase { start: Time::from_millis(ms), rate };
        let phases = vec![phase(2, rate("12M")), phase(4, None), phase(6, rate("24M"))];
        let source = CbrSource::new(AgentId(0), AgentId(1), 1500, phases, Time::from_millis(8));
        assert_eq!(run(source, 10), [0, 0, 1, 1, 0, 0, 2, 2, 0, 0]);
    }
}
