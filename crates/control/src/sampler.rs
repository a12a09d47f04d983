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
    /// The sending is limited by the application until so many packets have arrived.
    app_limited_until: u64,
}

impl Sampler {
    /// For a connection whose next new packet is `next`.
    pub fn new(next: Seq) -> Self {
        Sampler {
            first: next,
            records: VecDeque::new(),
            newest_sent_at: Time::ZERO,
            delivered_at: Time::ZERO,
            app_limited_until: 0,
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
            app_limited: view.delivered < self.app_limited_until,
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
        self.app_limited_until = view.delivered + u64::from(view.in_flight).max(1);
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
        sampler.on_sent(Seq::new(2), 0, &view(10, 1, 2));
        let limited = |sampler: &mut Sampler, seq| {
            let arrival = sampler.on_arrival(Time::from_millis(20), Seq::new(seq), 2);
            arrival.unwrap().1.app_limited
        };
        assert!(limited(&mut sampler, 1));
        assert!(!limited(&mut sampler, 2));
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
