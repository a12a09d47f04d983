//! How many packets are known to have arrived, in whatever order the peer's news comes.

use farhaul_wire::Seq;

#[derive(Debug)]
pub struct Delivered {
    /// Beyond the newest packet that is known to have arrived.
    seen: Seq,
    /// Packets in flight that have been taken for lost: those before `seen` that may be missing.
    missing: u32,
    /// Before this one the peer has missed so many when it last told. These are more than `missing` while a
    /// report of losses is on its way still, or was lost.
    told: (Seq, u32),
    count: u64,
}

impl Delivered {
    pub fn new(isn: Seq) -> Self {
        Delivered { seen: isn, missing: 0, told: (isn, 0), count: 0 }
    }

    /// Packets known to have arrived when they were last counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn seen(&self) -> Seq {
        self.seen
    }

    pub fn missing(&self) -> u32 {
        self.missing
    }

    /// Whether it is news that the packet just before `end` has arrived.
    pub fn see(&mut self, end: Seq) -> bool {
        let newer = end.since(self.seen) > 0;
        if newer {
            self.seen = end;
        }
        newer
    }

    /// The peer misses so many packets before `end`.
    pub fn told(&mut self, end: Seq, missing: u32) {
        if end.since(self.told.0) >= 0 {
            self.told = (end, missing);
        }
    }

    /// One more is taken for lost.
    pub fn lose(&mut self) {
        self.missing += 1;
    }

    /// All before `una` is acknowledged, `lost` packets among them that had been taken for lost.
    pub fn acknowledge(&mut self, una: Seq, lost: u32) {
        self.missing -= lost;
        let (end, missing) = self.told;
        self.told = (end, if una.since(end) < 0 { missing.saturating_sub(lost) } else { 0 });
    }

    /// Packets known to have arrived of those from `una` on.
    pub fn beyond(&self, una: Seq) -> u64 {
        let beyond = self.seen.since(una).max(0) as u64;
        beyond.saturating_sub(self.missing.max(self.told.1).into())
    }

    /// So many are known to have arrived, unless more were already; returns how many are news.
    pub fn reach(&mut self, known: u64) -> u64 {
        let news = known.saturating_sub(self.count);
        self.count += news;
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seq(place: u32) -> Seq {
        Seq::new(Seq::MAX - 4).plus(place)
    }

    /// After a path was cut the answer to a probe may come before the report of all that was lost.
    #[test]
    fn what_the_peer_misses_has_not_arrived_before_a_report_tells_of_it() {
        let mut delivered = Delivered::new(seq(0));
        delivered.see(seq(1_000));
        delivered.lose();
        delivered.told(seq(1_000), 998);
        assert_eq!(delivered.beyond(seq(0)), 2);
        (0..997).for_each(|_| delivered.lose());
        assert_eq!(delivered.beyond(seq(0)), 2);
        // Those that were sent again arrive.
        delivered.acknowledge(seq(500), 499);
        assert_eq!(delivered.beyond(seq(500)), 1);
        delivered.acknowledge(seq(1_000), 499);
        delivered.see(seq(1_010));
        assert_eq!(delivered.beyond(seq(1_000)), 10);
    }

    #[test]
    fn a_count_never_falls() {
        let mut delivered = Delivered::new(seq(0));
        assert_eq!((delivered.reach(10), delivered.reach(7), delivered.reach(12)), (10, 0, 2));
        assert_eq!(delivered.count(), 12);
    }
}
