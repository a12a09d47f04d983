//! What arrival times tell the receiver: packet arrival speed and link capacity (gu05 §3.4).
//!
//! Receive offload hands over many packets at one instant, so the unit here is the batch: what
//! arrived at one instant, and how long after the one before.

use farhaul_base::Time;

/// Intervals that the arrival-speed filter looks at.
const ARRIVALS: usize = 16;
/// Dispersions that the capacity filter looks at.
const PROBES: usize = 64;
/// Entries from which either filter tells something: a first window's worth, so that a flow that
/// leaves slow start at once is not left without an idea of the path.
const ENOUGH: usize = 8;
/// A train of at least this many packets that arrives at one instant counts as a dispersion of
/// [`INSTANT_NS`] a packet: a path too fast to resolve, and what a kernel's own path can do.
const INSTANT_TRAIN: u32 = 32;
const INSTANT_NS: f64 = 250.0;

/// One data packet's part in the estimates.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its place in the sequence space, continuous over the wrap.
    pub position: u64,
    /// The sender's clock when it left, microseconds.
    pub timestamp: u32,
    /// The first of a stock sender's packet pair or the second: sequence number modulo 16.
    pub phase: u32,
}

/// Estimates from the arrival of data packets.
#[derive(Debug)]
pub struct ArrivalEstimator {
    speed: Window<ARRIVALS>,
    capacity: Window<PROBES>,
    /// The batch that is arriving: its instant, packets so far.
    batch_at: Time,
    batch_packets: u32,
    /// Packets of the batch that continue the train of the packet before it, and when that came.
    train_packets: u32,
    train_from: Time,
    last: Option<Arrival>,
    peak: PeakRate,
}

impl ArrivalEstimator {
    pub fn new() -> Self {
        ArrivalEstimator {
            speed: Window::new(),
            capacity: Window::new(),
            batch_at: Time::ZERO,
            batch_packets: 0,
            train_packets: 0,
            train_from: Time::ZERO,
            last: None,
            peak: PeakRate::default(),
        }
    }

    /// A packet arrives at `now`. Retransmissions are to be left out.
    pub fn on_packet(&mut self, now: Time, packet: Arrival) {
        let new_batch = now > self.batch_at;
        if new_batch {
            self.close_batch(now);
        }
        if let Some(last) = self.last {
            let follows = packet.position == last.position + 1;
            let same_train =
                packet.timestamp == last.timestamp || (packet.phase == 1 && last.phase == 0);
            if follows && same_train {
                if new_batch {
                    self.train_from = self.batch_at;
                    self.train_packets = 1;
                } else if self.train_packets > 0 {
                    self.train_packets += 1;
                }
            } else if self.train_packets > 0 || new_batch {
                self.close_train(now);
            }
        }
        if new_batch {
            self.batch_at = now;
        }
        self.batch_packets += 1;
        self.last = Some(packet);
    }

    /// Many packets of one train, consecutive, arrive at one instant: what receive offload gives.
    pub fn on_run(&mut self, now: Time, first: Arrival, packets: u32) {
        self.on_packet(now, first);
        if packets > 1 {
            self.batch_packets += packets - 1;
            if self.train_packets > 0 {
                self.train_packets += packets - 1;
            } else if packets >= INSTANT_TRAIN {
                self.capacity.push(f64::from(packets) * INSTANT_NS, packets);
            }
            self.last = Some(Arrival {
                position: first.position + u64::from(packets) - 1,
                timestamp: first.timestamp,
                phase: (first.phase + packets - 1) % 16,
            });
        }
    }

    /// Packets arrive that say nothing about the spacing of the sender's: sent again, or out of
    /// order.
    pub fn on_stray(&mut self, now: Time) {
        if now > self.batch_at {
            self.close_batch(now);
            self.batch_at = now;
        }
        self.close_train(now);
        self.batch_packets += 1;
        self.last = None;
    }

    /// Packet arrival speed (AS), packets/s; 0 while unknown.
    pub fn arrival_rate(&self) -> f64 {
        self.speed.rate()
    }

    /// Link capacity (L), packets/s; 0 while unknown.
    pub fn capacity(&self) -> f64 {
        self.capacity.rate()
    }

    /// The highest arrival rate, averaged over at least `span_ns`, of the last seconds; packets/s.
    pub fn peak_rate(&mut self, now: Time, span_ns: u64) -> f64 {
        self.peak.rate(now, span_ns)
    }

    fn close_batch(&mut self, now: Time) {
        self.close_train(self.batch_at);
        if self.batch_packets > 0 {
            let gap = now.nanos_since(self.batch_at) as f64;
            // The gap is the batch's that it leads to; counting the one it follows instead differs
            // only at the ends, and this one's size is known.
            self.speed.push(gap, self.batch_packets);
            self.peak.add(self.batch_packets);
            self.batch_packets = 0;
        }
    }

    fn close_train(&mut self, end: Time) {
        if self.train_packets > 0 && end >= self.batch_at {
            let gap = self.batch_at.nanos_since(self.train_from) as f64;
            if gap > 0.0 {
                self.capacity.push(gap, self.train_packets);
            }
        }
        self.train_packets = 0;
    }
}

/// The last `N` intervals, each shared by some packets, and a median filter over them.
#[derive(Debug)]
struct Window<const N: usize> {
    /// Nanoseconds a packet, and packets.
    entries: [(f64, u32); N],
    filled: usize,
    next: usize,
}

impl<const N: usize> Window<N> {
    fn new() -> Self {
        Window { entries: [(0.0, 0); N], filled: 0, next: 0 }
    }

    fn push(&mut self, gap_ns: f64, packets: u32) {
        self.entries[self.next] = (gap_ns / f64::from(packets), packets);
        self.next = (self.next + 1) % N;
        self.filled = (self.filled + 1).min(N);
    }

    /// Packets per second over the intervals between an eighth and eight times the median; 0 if
    /// no more than half remain, or there are too few.
    fn rate(&self) -> f64 {
        if self.filled < ENOUGH {
            return 0.0;
        }
        let mut sorted: [f64; N] = [f64::INFINITY; N];
        for (slot, entry) in sorted.iter_mut().zip(&self.entries[..self.filled]) {
            *slot = entry.0;
        }
        let filled = &mut sorted[..self.filled];
        let (_, &mut median, _) = filled.select_nth_unstable_by(self.filled / 2, f64::total_cmp);
        let kept = self.entries[..self.filled]
            .iter()
            .filter(|(interval, _)| *interval > median / 8.0 && *interval < median * 8.0);
        let (mut time, mut packets, mut count) = (0.0, 0.0, 0);
        for &(interval, n) in kept {
            time += interval * f64::from(n);
            packets += f64::from(n);
            count += 1;
        }
        if count * 2 > self.filled && time > 0.0 { packets * 1e9 / time } else { 0.0 }
    }
}

/// The highest of recent average rates: what sizes a window for a path that bursts.
#[derive(Debug, Default)]
struct PeakRate {
    packets: u64,
    since: Option<Time>,
    /// Highest rate of the current period and of the one before.
    peaks: [f64; 2],
    period_start: Time,
}

impl PeakRate {
    const PERIOD_NS: u64 = 5_000_000_000;

    fn add(&mut self, packets: u32) {
        self.packets += u64::from(packets);
    }

    fn rate(&mut self, now: Time, span_ns: u64) -> f64 {
        let since = *self.since.get_or_insert(now);
        let elapsed = now.nanos_since(since);
        if elapsed >= span_ns && elapsed > 0 {
            let rate = self.packets as f64 * 1e9 / elapsed as f64;
            self.packets = 0;
            self.since = Some(now);
            if now.nanos_since(self.period_start) > Self::PERIOD_NS {
                self.peaks = [0.0, self.peaks[0]];
                self.period_start = now;
            }
            self.peaks[0] = self.peaks[0].max(rate);
        }
        self.peaks[0].max(self.peaks[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(position: u64, timestamp: u32) -> Arrival {
        Arrival { position, timestamp, phase: (position % 16) as u32 }
    }

    #[test]
    fn evenly_spaced_packets_give_their_rate() {
        let mut e = ArrivalEstimator::new();
        assert_eq!(e.arrival_rate(), 0.0);
        for i in 0..40 {
            e.on_packet(Time::from_micros(1000 + i * 50), packet(i, i as u32 * 50));
        }
        assert!((e.arrival_rate() - 20_000.0).abs() < 1.0, "{}", e.arrival_rate());
    }

    #[test]
    fn batches_count_by_their_packets_and_silences_are_filtered() {
        let mut e = ArrivalEstimator::new();
        let (mut now, mut position) = (Time::from_millis(1), 0);
        for i in 0..60 {
            for _ in 0..10 {
                e.on_packet(now, packet(position, i));
                position += 1;
            }
            now += core::time::Duration::from_micros(if i % 12 == 0 { 50_000 } else { 500 });
        }
        let rate = e.arrival_rate();
        assert!((rate - 20_000.0).abs() < 200.0, "{rate}");
    }

    /// Pairs leave back to back and arrive at the bottleneck's spacing, other packets far apart.
    #[test]
    fn packet_pairs_give_the_capacity() {
        let mut e = ArrivalEstimator::new();
        let mut now = Time::from_millis(1);
        for position in 0..2_000u64 {
            let gap = if position % 16 == 1 { 12 } else { 100 };
            now += core::time::Duration::from_micros(gap);
            e.on_packet(now, packet(position, now.as_micros() as u32));
        }
        let capacity = e.capacity();
        assert!((capacity - 1e6 / 12.0).abs() < 100.0, "{capacity}");
    }

    /// Bursts of one time stamp, spread by the bottleneck and read in batches of five.
    #[test]
    fn trains_read_in_batches_give_the_capacity() {
        let mut e = ArrivalEstimator::new();
        let mut position = 0;
        for burst in 0..100u64 {
            for i in 0..20u64 {
                let read_at = Time::from_micros(burst * 1_000 + (i / 5 + 1) * 60);
                e.on_packet(read_at, packet(position, burst as u32));
                position += 1;
            }
        }
        let capacity = e.capacity();
        assert!((capacity - 1e6 / 12.0).abs() < 500.0, "{capacity}");
    }

    #[test]
    fn a_lost_packet_breaks_the_train() {
        let mut e = ArrivalEstimator::new();
        let mut now = Time::from_millis(1);
        for position in (0..4_000u64).step_by(2) {
            now += core::time::Duration::from_micros(10);
            e.on_packet(now, packet(position, 7));
        }
        assert_eq!(e.capacity(), 0.0);
    }

    #[test]
    fn the_peak_rate_outlives_a_silence() {
        let mut e = ArrivalEstimator::new();
        let mut now = Time::from_millis(1);
        for position in 0..1_000u64 {
            now += core::time::Duration::from_micros(100);
            e.on_packet(now, packet(position, 0));
            e.peak_rate(now, 10_000_000);
        }
        let peak = e.peak_rate(now + core::time::Duration::from_secs(1), 10_000_000);
        assert!((9_000.0..11_000.0).contains(&peak), "{peak}");
    }
}
