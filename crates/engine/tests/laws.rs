//! What the framework promises to laws, and what it keeps them from doing.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod pair;

use core::cell::RefCell;
use core::time::Duration;

use farhaul_base::Time;
use farhaul_control::{
    Arrival, CustomMessage, Knobs, Law, LawInfo, Make, SentPacket, Spec, View, laws,
};
use farhaul_engine::{CloseReason, Config};
use farhaul_link::LinkConfig;
use farhaul_wire::Seq;
use pair::{A, B, Flow, Net, data, path, stream};

fn lossy(percent: &str) -> LinkConfig {
    LinkConfig { loss: percent.parse().unwrap(), ..path() }
}

/// A configuration with a law that is not registered.
fn with(info: &'static LawInfo) -> Config {
    Config { law: Spec::of(info), ..stream() }
}

const fn info(name: &'static str, make: Make) -> LawInfo {
    LawInfo { name, summary: "for a test", source: "this test", params: &[], make }
}

/// Every law has its turn of 100 ms, again and again, while data flows over a path that loses some.
#[test]
fn laws_change_every_100_ms_without_a_gap_in_the_data() {
    let mut net = Net::new(&lossy("0.5%"), 1);
    let ids = net.connect(stream(), stream());
    let mut flow = Flow::new(A, ids, data(3, 32 << 20));
    let names: Vec<&str> = laws().iter().map(|law| law.name).collect();
    let mut turns = 0;
    for name in names.iter().cycle().take(600) {
        let (now, spec) = (net.now, name.parse::<Spec>().unwrap());
        assert!(net.hosts[A].endpoint.set_law(now, ids.0, &spec));
        assert_eq!(net.update(A, ids.0, |c| c.law().name()), *name);
        assert_eq!(net.stats(A, ids.0).instant.law, *name);
        turns += 1;
        if net.run_until(Duration::from_millis(100), |net| flow.pump(net)) {
            break;
        }
    }
    assert_eq!(flow.read, 32 << 20, "in {turns} turns");
    assert!(turns >= 2 * names.len(), "each law has had its turn twice: {turns}");
}

#[derive(Debug)]
struct Panics;

impl Law for Panics {
    fn name(&self) -> &'static str {
        "panics"
    }

    fn on_ack(&mut self, next: Seq, _view: &View, _knobs: &mut Knobs) {
        panic!("an ACK, and what for? {}", next.since(next));
    }
}

#[test]
fn a_law_that_panics_ends_its_own_connection_and_no_other() {
    static PANICS: LawInfo = info("panics", Make::Law(|_, _| Box::new(Panics)));
    let mut net = Net::new(&path(), 1);
    let good = net.connect(stream(), stream());
    let bad = net.connect(with(&PANICS), stream());
    let mut well = Flow::new(A, good, data(1, 1 << 20));
    let mut ill = Flow::new(A, bad, data(2, 1 << 20));
    net.run_for(Duration::ZERO);
    let _ = ill.pump(&mut net);
    assert!(net.run_until(Duration::from_secs(5), |net| well.pump(net)));
    let (reason, failure) =
        net.update(A, bad.0, |c| (c.close_reason(), c.failure().map(str::to_owned)));
    assert_eq!(reason, Some(CloseReason::LawFailed));
    assert_eq!(failure.as_deref(), Some("an ACK, and what for? 0"));
    assert_eq!(net.update(B, bad.1, |c| c.close_reason()), Some(CloseReason::PeerAborted));
    assert_eq!(net.update(A, good.0, |c| c.close_reason()), None);
}

/// Sets what no connection could live with.
#[derive(Debug)]
struct Wild;

impl Law for Wild {
    fn name(&self) -> &'static str {
        "wild"
    }

    fn init(&mut self, _view: &View, knobs: &mut Knobs) {
        knobs.rto = Some(Duration::ZERO);
        knobs.rtt = Some(Duration::MAX);
    }

    fn on_ack(&mut self, _next: Seq, view: &View, knobs: &mut Knobs) {
        let bad = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0];
        let nth = view.trace.acks as usize;
        knobs.window = bad[nth % 5];
        knobs.period_ns = if nth.is_multiple_of(7) { f64::NAN } else { bad[2 + nth % 3] };
        knobs.ack_period = Duration::MAX;
        let message = CustomMessage { subtype: 9, info: 1, payload: vec![1; 1 << 20] };
        knobs.messages = vec![message; 200];
    }
}

#[test]
fn the_monitor_tells_what_the_law_is_doing() {
    let mut net = Net::new(&lossy("0.5%"), 1);
    let config = Config { law: "reno".parse().unwrap(), ..stream() };
    let ids = net.connect(config, stream());
    let instant = net.stats(A, ids.0).instant;
    assert_eq!((instant.law, instant.state), ("reno", "slow start"));
    let mut flow = Flow::new(A, ids, data(3, 4 << 20));
    let mut seen = std::collections::BTreeSet::new();
    net.run_until(Duration::from_secs(60), |net| {
        seen.insert(net.stats(A, ids.0).instant.state);
        flow.pump(net)
    });
    assert_eq!(Vec::from_iter(seen), ["avoidance", "recovery", "slow start"]);
}

#[test]
fn a_law_gone_wild_is_kept_within_limits() {
    static WILD: LawInfo = info("wild", Make::Law(|_, _| Box::new(Wild)));
    let mut net = Net::new(&path(), 1);
    let ids = net.connect(with(&WILD), with(&WILD));
    let mut flow = Flow::new(A, ids, data(1, 100_000));
    assert!(net.run_until(Duration::from_secs(60), |net| flow.pump(net)), "{}", flow.read);
}

thread_local! {
    static ARRIVALS: RefCell<Vec<Arrival>> = const { RefCell::new(Vec::new()) };
    static HEARD: RefCell<Vec<(u16, u32, Vec<u8>)>> = const { RefCell::new(Vec::new()) };
    static ALARMS: RefCell<Vec<Time>> = const { RefCell::new(Vec::new()) };
}

/// Tags each packet with its number, and has it acknowledged.
#[derive(Debug)]
struct Tags;

impl Law for Tags {
    fn name(&self) -> &'static str {
        "tags"
    }

    fn watches_packets(&self) -> bool {
        true
    }

    fn init(&mut self, _view: &View, knobs: &mut Knobs) {
        // 1500 bytes each 600 us: 20 Mb/s.
        (knobs.window, knobs.period_ns, knobs.ack_interval) = (1_000.0, 600_000.0, 1);
    }

    fn on_packet_sent(&mut self, packet: &SentPacket, _view: &View, _knobs: &mut Knobs) -> u64 {
        assert_eq!(packet.len, 1_456);
        u64::from(packet.seq.value()) + 1
    }

    fn on_ack(&mut self, _next: Seq, view: &View, _knobs: &mut Knobs) {
        ARRIVALS.with_borrow_mut(|arrivals| arrivals.extend(view.newest));
    }

    fn on_loss(&mut self, _: &[farhaul_wire::LossRange], view: &View, knobs: &mut Knobs) {
        self.on_ack(Seq::new(0), view, knobs);
    }
}

#[test]
fn tags_and_samples_come_back_with_what_arrives() {
    static TAGS: LawInfo = info("tags", Make::Law(|_, _| Box::new(Tags)));
    for loss in ["0%", "2%"] {
        let mut net = Net::new(&lossy(loss), 1);
        let ids = net.connect(with(&TAGS), with(&TAGS));
        let mut flow = Flow::new(A, ids, data(1, 1_456 * 5_000));
        assert!(net.run_until(Duration::from_secs(20), |net| flow.pump(net)));
        let arrivals = ARRIVALS.take();
        // Behind a hole only reports of losses tell what arrives.
        assert!(arrivals.len() > 2_000, "{loss}: {}", arrivals.len());
        let (mut rates, mut rtts) = (Vec::new(), Vec::new());
        for arrival in &arrivals {
            assert_eq!(arrival.tag, u64::from(arrival.seq.value()) + 1);
            rtts.push(arrival.rtt.as_secs_f64());
            let delivery = arrival.delivery.unwrap();
            assert!(delivery.in_flight > 0 && delivery.packets > 0);
            rates.push(delivery.rate());
        }
        // The path's round trip, and a burst of a millisecond; a loss report that is lost tells late.
        rtts.sort_by(f64::total_cmp);
        let late = rtts[rtts.len() * 99 / 100];
        assert!(rtts[0] >= 0.020 && late < 0.0225, "{loss}: {} {late}", rtts[0]);
        rates.sort_by(f64::total_cmp);
        let share = |quantile: f64| rates[(quantile * rates.len() as f64) as usize] * 600e-6;
        assert!((0.9..1.05).contains(&share(0.5)), "{loss}: {}", share(0.5));
        assert!(share(0.999) < 1.15, "{loss}: {}", share(0.999));
    }
}

/// Answers each message with the next number, and its timer goes off every 50 ms.
#[derive(Debug)]
struct Talks;

impl Law for Talks {
    fn name(&self) -> &'static str {
        "talks"
    }

    fn init(&mut self, view: &View, knobs: &mut Knobs) {
        knobs.messages.push(CustomMessage { subtype: 7, info: 0, payload: b"hello".to_vec() });
        knobs.timer = Some(view.now + Duration::from_millis(50));
    }

    fn on_custom_message(
        &mut self,
        subtype: u16,
        info: u32,
        payload: &[u8],
        _view: &View,
        knobs: &mut Knobs,
    ) {
        HEARD.with_borrow_mut(|heard| heard.push((subtype, info, payload.to_vec())));
        if info < 3 {
            let payload = payload.to_vec();
            knobs.messages.push(CustomMessage { subtype, info: info + 1, payload });
        }
    }

    fn on_timer(&mut self, view: &View, knobs: &mut Knobs) {
        ALARMS.with_borrow_mut(|alarms| alarms.push(view.now));
        knobs.timer = Some(view.now + Duration::from_millis(50));
    }
}

#[test]
fn laws_talk_to_each_other_and_have_a_timer() {
    static TALKS: LawInfo = info("talks", Make::Law(|_, _| Box::new(Talks)));
    let mut net = Net::new(&path(), 1);
    let _ids = net.connect(with(&TALKS), with(&TALKS));
    net.run_for(Duration::from_millis(1_020));
    let heard = HEARD.take();
    assert!(heard.iter().all(|(subtype, _, text)| (*subtype, text.as_slice()) == (7, b"hello")));
    let mut numbers: Vec<u32> = heard.iter().map(|(_, info, _)| *info).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 0, 1, 1, 2, 2, 3, 3]);
    let alarms = ALARMS.take();
    assert!((38..=42).contains(&alarms.len()), "20 a second on each side: {}", alarms.len());
}

/// Four times as much in each round trip, where the flow window allows it.
#[derive(Debug)]
struct Eager(u32);

impl Law for Eager {
    fn name(&self) -> &'static str {
        "eager"
    }

    fn init(&mut self, _view: &View, knobs: &mut Knobs) {
        (knobs.window, knobs.ack_interval, knobs.window_growth) = (32.0, 2, self.0);
    }

    fn on_ack(&mut self, _next: Seq, view: &View, knobs: &mut Knobs) {
        knobs.window = 32.0 + 3.0 * view.delivered as f64;
    }
}

#[test]
fn the_flow_window_grows_as_fast_as_the_law_asks() {
    static TWO: LawInfo = info("two", Make::Law(|_, _| Box::new(Eager(2))));
    static EIGHT: LawInfo = info("eight", Make::Law(|_, _| Box::new(Eager(8))));
    let far = LinkConfig {
        rate: Some("1G".parse().unwrap()),
        delay: Duration::from_millis(100),
        queue: "unlimited".parse().unwrap(),
        ..LinkConfig::default()
    };
    let windows = [&TWO, &EIGHT].map(|law| {
        let mut net = Net::new(&far, 1);
        let ids = net.connect(with(law), with(law));
        let mut flow = Flow::new(A, ids, data(1, 64 << 20));
        net.run_until(Duration::from_millis(1_250), |net| flow.pump(net));
        flow.read / 1456
    });
    assert!(windows[1] > 2 * windows[0], "{windows:?}");
}

/// A receiver that divides 20 Mb/s, and senders that do as they are told, or as they like.
#[test]
fn a_sender_that_ignores_its_grant_is_told_of() {
    let law = |text: &str| Config { law: text.parse().unwrap(), ..stream() };
    for (sender, state) in
        [("gtp:capacity=20M", "granting"), ("blast:rate=60M", "the sender ignores its grant")]
    {
        let mut net = Net::new(&path(), 1);
        let ids = net.connect(law(sender), law("gtp:capacity=20M"));
        let mut flow = Flow::new(A, ids, data(1, 8 << 20));
        net.run_until(Duration::from_secs(1), |net| flow.pump(net));
        assert_eq!(net.update(B, ids.1, |c| c.law().state()), state, "{sender}");
        if state == "granting" {
            let share = flow.read as f64 * 8.0 / 20e6;
            assert!((0.7..1.0).contains(&share), "it keeps to its grant: {share}");
        }
    }
}

#[test]
fn a_fixed_rate_is_another_while_data_flows() {
    let blast = |rate: &str| -> Spec { format!("blast:rate={rate}").parse().unwrap() };
    let mut net = Net::new(&path(), 1);
    let ids = net.connect(Config { law: blast("10M"), ..stream() }, stream());
    let mut flow = Flow::new(A, ids, data(1, 64 << 20));
    let mut before = 0;
    for (rate, bits) in [("10M", 10e6), ("40M", 40e6), ("20M", 20e6)] {
        let now = net.now;
        assert!(net.hosts[A].endpoint.set_law(now, ids.0, &blast(rate)));
        net.run_until(Duration::from_secs(1), |net| flow.pump(net));
        let share = (flow.read - before) as f64 * 8.0 / bits;
        assert!((0.9..1.02).contains(&share), "{rate}: {share}");
        before = flow.read;
    }
}
