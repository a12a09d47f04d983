//! What is remembered of each packet in flight for a law that watches packets: its tag, and what
//! had arrived when it left, from which the delivery rate is sampled
//! (draft-cheng-iccrg-delivery-rate-estimation).

use std::collections::VecDeque;

use farhaul_base::Time;
use farhaul_wire::Seq;

use crate::{Delivery, View};

/// One packet in flight.
#[derive(Clone, Copy, Debug)]
struct Record {
    tag: u64,
    sent_at: Time,
    /// When the first packet left of those whose arrival the sample counts.
    first_sent_at: Time,
    /// When the last arrival was known that is not in the sample.
    delivered_at: Time,
    delivered: u64,
    lost: u64,
    in_flight: u32,
    app_limited: bool,
}

/// The packets in flight, in the order of their numbers.
#[derive(Debug)]
pub struct Sampler {
    first: Seq,
    records: VecDeque<Record>,
    /// When the newest packet that has arrived was sent, and when that was known.
    newest_sent_at: Time,
    delivered_at: Time,
    /// There was nothing more to send when so many packets had left: the samples of packets that leave before
    /// more than these have arrived say nothing of the path.
    app_limited_until: Option<u64>,
}

impl Sampler {
    /// For a connection whose next new packet is `next`.
    pub fn new(next: Seq) -> Self {
        Sampler {
            first: next,
            records: VecDeque::new(),
            newest_sent_at: Time::ZERO,
            delivered_at: Time::ZERO,
            app_limited_until: None,
        }
    }

    /// A packet leaves, for the first time or again; `view` is that of its sending, which counts it
    /// as in flight already.
    pub fn on_sent(&mut self, seq: Seq, tag: u64, view: &View) {
        if self.records.is_empty() || view.in_flight <= 1 {
            // After a silence the interval begins with the sending (section 3.2 of the draft).
            self.newest_sent_at = view.now;
            self.delivered_at = view.now;
        }
        let record = Record {
            tag,
            sent_at: view.now,
            first_sent_at: self.newest_sent_at,
            delivered_at: self.delivered_at,
            delivered: view.delivered,
            lost: view.trace.packets_lost,
            in_flight: view.in_flight,
            // The first after a silence as well, as in Linux (net/ipv4/tcp_rate.c): of one packet at a time,
            // as in a handshake, a round trip never brings more.
            app_limited: self.app_limited_until.is_some_and(|until| view.delivered <= until),
        };
        match usize::try_from(seq.since(self.first)) {
            Ok(index) if index < self.records.len() => self.records[index] = record,
            Ok(index) if index == self.records.len() => self.records.push_back(record),
            // A gap: packets left while nothing was recorded.
            Ok(_) => {
                self.records.clear();
                self.records.push_back(record);
                self.first = seq;
            }
            Err(_) => {}
        }
    }

    /// There was nothing more to send, `view` tells when.
    pub fn on_app_limited(&mut self, view: &View) {
        self.app_limited_until = Some(view.delivered + u64::from(view.in_flight).max(1));
    }

    /// The packet `seq`, newer than all before, is known at `now` to have arrived, and with it
    /// `delivered` in all. Returns its tag and the sample that ends with it.
    pub fn on_arrival(&mut self, now: Time, seq: Seq, delivered: u64) -> Option<(u64, Delivery)> {
        let index = usize::try_from(seq.since(self.first)).ok()?;
        let record = *self.records.get(index)?;
        let send_span = record.sent_at - record.first_sent_at;
        let arrival_span = now - record.delivered_at;
        self.newest_sent_at = record.sent_at;
        self.delivered_at = now;
        let interval = send_span.max(arrival_span);
        let delivery = Delivery {
            packets: delivered.saturating_sub(record.delivered),
            interval,
            app_limited: record.app_limited,
            delivered_before: record.delivered,
            in_flight: record.in_flight,
            lost_before: record.lost,
        };
        (!interval.is_zero()).then_some((record.tag, delivery))
    }

    /// Forgets the packets before `next`.
    pub fn acknowledge(&mut self, next: Seq) {
        let done = usize::try_from(next.since(self.first)).unwrap_or(0);
        if done > 0 {
            self.records.drain(..done.min(self.records.len()));
            self.first = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::Trace;

    fn view(ms: u64, delivered: u64, in_flight: u32) -> View {
        let trace = Trace { packets_lost: 3, ..Trace::default() };
        View { now: Time::from_millis(ms), delivered, in_flight, trace, ..View::default() }
    }

    #[test]
    fn a_steady_flow_is_sampled_at_its_rate() {
        // A packet a millisecond, each arrives 10 ms later.
        let mut sampler = Sampler::new(Seq::new(0));
        for ms in 0..30u32 {
            let at = view(ms.into(), ms.saturating_sub(9).into(), 1 + ms.min(9));
            if ms >= 10 {
                let seq = Seq::new(ms - 10);
                let now = Time::from_millis(ms.into());
                let (tag, sample) = sampler.on_arrival(now, seq, u64::from(ms) - 9).unwrap();
                assert_eq!(tag, u64::from(ms) - 10);
                if ms > 20 {
                    assert_eq!((sample.packets, sample.interval), (10, Duration::from_millis(10)));
                    assert_eq!((sample.in_flight, sample.lost_before), (10, 3));
                }
                sampler.acknowledge(seq.next());
            }
            sampler.on_sent(Seq::new(ms), ms.into(), &at);
        }
        assert!(sampler.records.len() <= 11);
    }

    #[test]
    fn a_pause_of_the_application_is_marked_until_what_was_in_flight_has_arrived() {
        let mut sampler = Sampler::new(Seq::new(0));
        sampler.on_sent(Seq::new(0), 0, &view(0, 0, 1));
        sampler.on_app_limited(&view(0, 0, 1));
        sampler.on_sent(Seq::new(1), 0, &view(1, 0, 2));
        sampler.on_sent(Seq::new(2), 0, &view(10, 2, 1));
        let limited = |sampler: &mut Sampler, seq| {
            let arrival = sampler.on_arrival(Time::from_millis(20), Seq::new(seq), 2);
            arrival.unwrap().1.app_limited
        };
        assert!(limited(&mut sampler, 1));
        assert!(!limited(&mut sampler, 2));
    }

    /// As in a handshake: a law that took these for the path would leave its start before any data.
    #[test]
    fn a_packet_that_is_sent_alone_tells_nothing_of_the_path() {
        let mut sampler = Sampler::new(Seq::new(0));
        let mut limited = Vec::new();
        for turn in 0..5u32 {
            let (ms, delivered) = (100 * u64::from(turn), u64::from(turn));
            sampler.on_sent(Seq::new(turn), 0, &view(ms, delivered, 1));
            sampler.on_app_limited(&view(ms, delivered, 1));
            let now = Time::from_millis(ms + 100);
            let sample = sampler.on_arrival(now, Seq::new(turn), delivered + 1).unwrap().1;
            limited.push(sample.app_limited);
            sampler.acknowledge(Seq::new(turn + 1));
        }
        assert_eq!(limited[1..], [true; 4]);
        // Then there is enough to send: from the first arrival on, the path is what limits.
        sampler.on_sent(Seq::new(5), 0, &view(600, 5, 1));
        sampler.on_sent(Seq::new(6), 0, &view(601, 5, 2));
        sampler.on_sent(Seq::new(7), 0, &view(700, 6, 2));
        let mut arrives = |seq, delivered| {
            let arrival = sampler.on_arrival(Time::from_millis(800), Seq::new(seq), delivered);
            arrival.unwrap().1.app_limited
        };
        assert_eq!([arrives(5, 6), arrives(6, 7), arrives(7, 8)], [true, true, false]);
    }

    #[test]
    fn what_was_not_recorded_has_no_sample() {
        let mut sampler = Sampler::new(Seq::new(10));
        let now = Time::from_millis(1);
        assert_eq!(sampler.on_arrival(now, Seq::new(3), 1), None, "sent before");
        sampler.on_sent(Seq::new(20), 7, &view(0, 0, 5));
        assert_eq!(sampler.on_arrival(now, Seq::new(15), 1), None);
        assert_eq!(sampler.on_arrival(now, Seq::new(20), 1).map(|(tag, _)| tag), Some(7));
        sampler.acknowledge(Seq::new(30));
        assert_eq!(sampler.on_arrival(now, Seq::new(25), 1), None);
    }
}
