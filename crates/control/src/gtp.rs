//! `gtp`: group transport, in which a receiver tells each of its senders how fast to send (Wu and
//! Chien, "GTP: Group Transport Protocol for Lambda-Grids", CCGrid 2004; gu05 §5.3.5).
//!
//! Both ends of a connection run this law. The end that receives reports what arrives to the
//! manager of its host and passes the rate that it is granted on to the other end, in a control
//! message; the end that sends does as it is told. The published description leaves the intervals
//! and the estimator open; those of the manager are farhaul's.

mod manager;

use core::net::IpAddr;
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::manager::{Arrivals, Manager, Settings};
use crate::{CustomMessage, GroupControl, Knobs, Law, LawInfo, Make, Param, SYN, View};

/// The control message with a grant: `info` is the rate in kb/s, the body its running number.
const GRANT: u16 = 1;
/// A grant that has not changed is repeated after so long: the message may have been lost.
const REPEAT: Duration = Duration::from_millis(100);
/// The receiver answers for the losses of the group, and holds them far lower: what a single member
/// of it loses while another joins says little of its own rate.
const MEMBERS_LOSS: f64 = 0.2;

/// The receiver's group.
#[derive(Debug)]
pub struct Gtp {
    manager: Arc<Mutex<Manager>>,
    first_rate: f64,
}

impl Gtp {
    pub(crate) const INFO: LawInfo = LawInfo {
        name: "gtp",
        summary: "many senders to one receiver, which gives each its fair share; both ends use it",
        source: "Wu and Chien, GTP (CCGrid 2004); Gu, UDT dissertation (2005), section 5.3.5",
        params: &[
            Param::rate("first", 1e6, "what a sender sends before it is told a rate"),
            Param::time("interval", 0.1, (0.01, 10.0), "how often the receiver divides anew"),
            Param::number(
                "tolerance",
                0.001,
                (0.0, 0.5),
                "",
                "share of packets that may be lost without being an overrun",
            ),
            Param::rate("capacity", 0.0, "what the receiver can take; 0: it is estimated")
                .from(0.0),
        ],
        make: Make::Group(|values| {
            let capacity = values.get("capacity");
            Box::new(Gtp::new(
                values.get("first"),
                Duration::from_secs_f64(values.get("interval")),
                values.get("tolerance"),
                (capacity > 0.0).then_some(capacity),
            ))
        }),
    };

    /// `first_rate` and `capacity` in bits/s; `tolerance`: the share of packets that may be lost
    /// without being an overrun.
    pub fn new(first_rate: f64, interval: Duration, tolerance: f64, capacity: Option<f64>) -> Self {
        let settings = Settings { capacity, first_rate, interval, tolerance };
        Gtp { manager: Arc::new(Mutex::new(Manager::new(settings))), first_rate }
    }
}

impl GroupControl for Gtp {
    fn join(&mut self, _peer: IpAddr, _seed: u64) -> Box<dyn Law> {
        let manager = self.manager.clone();
        Box::new(Member {
            manager,
            rate: self.first_rate,
            heard: 0,
            receiving: None,
            misled: false,
        })
    }
}

/// One connection's part.
#[derive(Debug)]
struct Member {
    manager: Arc<Mutex<Manager>>,
    /// What this end may send, bits/s, and the number of the grant that said so.
    rate: f64,
    heard: u32,
    /// What this end does for the data that it receives, once there is some.
    receiving: Option<Receiving>,
    /// The other end sends more than it may.
    misled: bool,
}

#[derive(Debug)]
struct Receiving {
    id: u64,
    /// The last grant told, kb/s, its number, and when it is repeated.
    told: u32,
    number: u32,
    repeat_at: farhaul_base::Time,
}

impl Member {
    fn manager(&self) -> MutexGuard<'_, Manager> {
        self.manager.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports what has arrived, and passes on what comes back.
    fn serve(&mut self, view: &View, knobs: &mut Knobs) {
        let id = match &self.receiving {
            Some(receiving) => receiving.id,
            None if view.trace.packets_received > 0 => {
                // The others hear of their grants at their next timer.
                let id = self.manager().join(view.now, 2 * SYN);
                let repeat_at = view.now;
                self.receiving = Some(Receiving { id, told: 0, number: 0, repeat_at });
                id
            }
            None => return,
        };
        let arrivals = Arrivals {
            bits: view.trace.packets_received as f64 * f64::from(view.mss) * 8.0,
            packets: view.trace.packets_received,
            missed: view.trace.packets_missed,
            rtt: view.rtt,
            rtt_min: view.rtt_min.min(view.rtt),
        };
        let mut manager = self.manager();
        let grant = manager.report(view.now, id, arrivals);
        let misled = manager.ignores_grant(id);
        drop(manager);
        self.misled = misled;
        let Some(receiving) = &mut self.receiving else { return };
        let kilobits = (grant / 1e3).clamp(1.0, f64::from(u32::MAX)) as u32;
        if kilobits != receiving.told || view.now >= receiving.repeat_at {
            receiving.told = kilobits;
            receiving.number += 1;
            receiving.repeat_at = view.now + REPEAT;
            let payload = receiving.number.to_be_bytes().to_vec();
            knobs.messages.push(CustomMessage { subtype: GRANT, info: kilobits, payload });
        }
    }

    fn obey(&self, view: &View, knobs: &mut Knobs) {
        knobs.period_ns = f64::from(view.mss) * 8e9 / self.rate;
    }
}

impl Law for Member {
    fn name(&self) -> &'static str {
        Gtp::INFO.name
    }

    fn state(&self) -> &'static str {
        match (&self.receiving, self.heard, self.misled) {
            (_, _, true) => "the sender ignores its grant",
            (Some(_), ..) => "granting",
            (None, 0, _) => "waiting for a grant",
            (None, ..) => "granted",
        }
    }

    fn init(&mut self, view: &View, knobs: &mut Knobs) {
        knobs.window = view.max_window.into();
        knobs.tolerated_loss = MEMBERS_LOSS;
        self.obey(view, knobs);
        knobs.timer = Some(view.now + SYN);
    }

    fn on_timer(&mut self, view: &View, knobs: &mut Knobs) {
        self.serve(view, knobs);
        knobs.timer = Some(view.now + SYN);
    }

    fn on_custom_message(
        &mut self,
        subtype: u16,
        info: u32,
        payload: &[u8],
        view: &View,
        knobs: &mut Knobs,
    ) {
        let Ok(number) = payload.try_into().map(u32::from_be_bytes) else { return };
        // One that was overtaken says nothing.
        if subtype == GRANT && number > self.heard && info > 0 {
            self.heard = number;
            self.rate = f64::from(info) * 1e3;
            self.obey(view, knobs);
        }
    }

    fn close(&mut self, view: &View, _knobs: &mut Knobs) {
        if let Some(receiving) = self.receiving.take() {
            self.manager().leave(view.now, receiving.id);
        }
    }
}
