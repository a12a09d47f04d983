//! TCP flows in the simulator.

use core::time::Duration;

use farhaul_base::{Rng, Time};
use farhaul_link::LinkConfig;
use farhaul_sim::{Agent, AgentId, Network, Simulation, TcpConfig, TcpSink, TcpSource, Workload};

/// A link of `rate` and a round trip of `rtt_ms`, with a queue of their product.
fn path(rate: &str, rtt_ms: u64) -> LinkConfig {
    LinkConfig { queue: format!("bdp:{rtt_ms}ms").parse().unwrap(), ..open_path(rate, rtt_ms) }
}

/// The same with a queue without bound.
fn open_path(rate: &str, rtt_ms: u64) -> LinkConfig {
    LinkConfig {
        rate: Some(rate.parse().unwrap()),
        delay: Duration::from_millis(rtt_ms) / 2,
        ..LinkConfig::default()
    }
}

fn config(law: &str) -> TcpConfig {
    TcpConfig { law: law.parse().unwrap(), ..TcpConfig::default() }
}

/// Each segment acknowledged, as the response functions have it.
fn undelayed(law: &str) -> TcpConfig {
    TcpConfig { delayed_ack: None, ..config(law) }
}

const WITHOUT_END: Workload =
    Workload::Bulk { start: Time::ZERO, stop: Time::from_secs(1_000_000), bytes: None };

fn transfer(bytes: u64) -> Workload {
    Workload::Bulk { start: Time::ZERO, stop: Time::from_secs(1_000_000), bytes: Some(bytes) }
}

struct Run {
    simulation: Simulation,
}

impl Run {
    /// Flow n is from agent 2n to agent 2n + 1; `there` and `back` are the links.
    fn new(
        (there, back): (&LinkConfig, &LinkConfig),
        flows: &[(TcpConfig, Workload)],
        seed: u64,
    ) -> Self {
        let mut network = Network::new();
        let (left, right) = (network.node(), network.node());
        network.link(left, right, there.clone(), seed);
        network.link(right, left, back.clone(), seed + 1);
        let mut agents = Vec::new();
        for (flow, (config, workload)) in flows.iter().enumerate() {
            let (from, to) = (AgentId(2 * flow as u32), AgentId(2 * flow as u32 + 1));
            let seed = seed + 2 + flow as u64;
            let source = TcpSource::new(from, to, config.clone(), *workload, seed);
            let sink = TcpSink::new(to, config.clone());
            agents.push((left, Agent::TcpSource(Box::new(source))));
            agents.push((right, Agent::TcpSink(Box::new(sink))));
        }
        Run { simulation: Simulation::new(network, agents) }
    }

    /// One flow over a link, and back over one like it that does nothing but delay.
    fn one(link: &LinkConfig, config: TcpConfig, workload: Workload, seed: u64) -> Self {
        let back = LinkConfig { rate: link.rate, delay: link.delay, ..LinkConfig::default() };
        Run::new((link, &back), &[(config, workload)], seed)
    }

    fn until(&mut self, seconds: f64) -> &mut Self {
        self.simulation.run_until(Time::from_nanos((seconds * 1e9) as u64));
        self
    }

    fn source(&mut self, flow: u32) -> &TcpSource {
        match self.simulation.agent_mut(AgentId(2 * flow)) {
            Agent::TcpSource(source) => source,
            other => panic!("not a source: {other:?}"),
        }
    }

    fn sink(&mut self, flow: u32) -> &TcpSink {
        match self.simulation.agent_mut(AgentId(2 * flow + 1)) {
            Agent::TcpSink(sink) => sink,
            other => panic!("not a sink: {other:?}"),
        }
    }

    /// Bits of payload a second that each of `flows` gets between two times.
    fn goodput(&mut self, flows: u32, from: f64, to: f64) -> Vec<f64> {
        self.until(from);
        let before: Vec<u64> = (0..flows).map(|flow| self.sink(flow).received()).collect();
        self.until(to);
        let bits = |flow| (self.sink(flow).received() - before[flow as usize]) as f64 * 8.0;
        (0..flows).map(bits).map(|bits| bits / (to - from)).collect()
    }

    /// Segments a round trip of `rtt` seconds, between two times.
    fn mean_window(&mut self, rtt: f64, from: f64, to: f64) -> f64 {
        self.goodput(1, from, to)[0] / 8.0 / 1460.0 * rtt
    }
}

/// Of the payload that fits a link.
const PAYLOAD_SHARE: f64 = 1460.0 / 1500.0;

#[test]
fn one_flow_fills_its_link() {
    for law in ["reno", "cubic"] {
        let mut run = Run::one(&path("10M", 40), config(law), WITHOUT_END, 1);
        let share = run.goodput(1, 10.0, 60.0)[0] / 10e6 / PAYLOAD_SHARE;
        assert!(share > 0.95 && share < 1.001, "{law}: {share}");
        let stats = run.source(0).stats();
        assert_eq!(stats.timeouts, 0, "{law}: {stats:?}");
        assert!(stats.recoveries > 3, "{law}: {stats:?}");
    }
}

#[test]
fn two_flows_share_a_link() {
    for law in ["reno", "cubic"] {
        let flows = [(config(law), WITHOUT_END), (config(law), WITHOUT_END)];
        let link = path("10M", 40);
        let mut run = Run::new((&link, &link), &flows, 1);
        let rates = run.goodput(2, 10.0, 70.0);
        let sum: f64 = rates.iter().sum();
        let index = sum * sum / (2.0 * rates.iter().map(|r| r * r).sum::<f64>());
        assert!(index > 0.9, "{law}: {index}, {rates:?}");
        assert!(sum > 0.95 * 10e6 * PAYLOAD_SHARE, "{law}: {rates:?}");
    }
}

#[test]
fn without_loss_nothing_is_sent_twice() {
    for law in ["reno", "cubic", "udt"] {
        let mut run = Run::one(&open_path("20M", 50), config(law), transfer(10_000_000), 1);
        run.until(20.0);
        assert_eq!(run.sink(0).received(), 10_000_000, "{law}");
        let stats = run.source(0).stats();
        assert_eq!(stats.segments_sent, 6_850, "{law}: 10 MB in segments of 1460 bytes");
        assert_eq!((stats.segments_retransmitted, stats.timeouts, stats.recoveries), (0, 0, 0));
        assert_eq!(run.sink(0).stats().duplicates, 0);
        assert_eq!(run.source(0).transfers().completed, 1);
    }
}

#[test]
fn single_losses_are_repaired_without_a_time_out() {
    for proportional in [true, false] {
        let mut link = open_path("50M", 40);
        link.loss = "list:300,900,1500,2500,2600,2700".parse().unwrap();
        let config = TcpConfig { proportional, ..config("reno") };
        let mut run = Run::one(&link, config, transfer(6_000_000), 1);
        run.until(20.0);
        assert_eq!(run.sink(0).received(), 6_000_000);
        let stats = run.source(0).stats();
        assert_eq!((stats.segments_retransmitted, stats.timeouts), (6, 0), "{stats:?}");
        assert!((4..=6).contains(&stats.recoveries), "{stats:?}");
        assert_eq!(run.sink(0).stats().duplicates, 0);
    }
}

/// RFC 6675 leaves a lost retransmission to the timer; here later segments tell. Whatever segment
/// is lost after number 900, be it the retransmission of that, there is no time-out.
#[test]
fn a_lost_retransmission_is_repaired_without_a_time_out() {
    for other in 901..980 {
        let mut link = open_path("50M", 40);
        // The first one ends slow start, so that windows are small.
        link.loss = format!("list:20,900,{other}").parse().unwrap();
        let mut run = Run::one(&link, undelayed("reno"), transfer(2_000_000), 1);
        run.until(20.0);
        assert_eq!(run.sink(0).received(), 2_000_000);
        let stats = run.source(0).stats();
        assert_eq!((stats.segments_retransmitted, stats.timeouts), (3, 0), "{other}: {stats:?}");
    }
}

#[test]
fn what_is_lost_at_the_end_is_for_the_timer() {
    let mut link = open_path("50M", 40);
    // SYN and 100 segments.
    link.loss = "list:101".parse().unwrap();
    let mut run = Run::one(&link, config("reno"), transfer(146_000), 1);
    run.until(10.0);
    assert_eq!(run.sink(0).received(), 146_000);
    let stats = run.source(0).stats();
    assert_eq!((stats.segments_retransmitted, stats.timeouts, stats.recoveries), (1, 1, 0));
    let time = run.source(0).transfers().mean_time();
    // SYN, four to five rounds of slow start, the time-out of 200 ms and its answer.
    assert!((0.4..0.55).contains(&time.as_secs_f64()), "{time:?}");
}

#[test]
fn a_lost_syn_is_sent_again_after_a_second() {
    let mut link = open_path("50M", 40);
    link.loss = "list:1".parse().unwrap();
    let mut run = Run::one(&link, config("reno"), transfer(1_460), 1);
    run.until(10.0);
    let time = run.source(0).transfers().mean_time();
    assert!((1.08..1.09).contains(&time.as_secs_f64()), "{time:?}");
    assert_eq!(run.source(0).stats().timeouts, 1);
}

#[test]
fn acks_wait_for_a_second_segment_or_40_ms() {
    let time = |config: TcpConfig, segments: u64| {
        let mut run = Run::one(&open_path("50M", 20), config, transfer(segments * 1_460), 1);
        run.until(5.0);
        let acks = run.sink(0).stats().acks;
        (run.source(0).transfers().mean_time().as_secs_f64(), acks)
    };
    // The FIN is acknowledged at once; every other ACK is for two.
    let (_, acks) = time(config("reno:window=64"), 60);
    assert_eq!(acks, 30);
    let (_, acks) = time(undelayed("reno:window=64"), 60);
    assert_eq!(acks, 60);
    // A window of one: the second segment leaves only when the first one's ACK has waited.
    let (late, _) = time(config("reno:window=1"), 2);
    let (soon, _) = time(undelayed("reno:window=1"), 2);
    assert!((late - soon - 0.040).abs() < 1e-3, "{late} {soon}");
    assert_eq!(config("reno").warning(), None);
    let slow = TcpConfig { delayed_ack: Some(Duration::from_millis(200)), ..config("reno") };
    assert!(slow.warning().is_some());
}

#[test]
fn the_receive_window_bounds_what_is_in_flight() {
    let config = TcpConfig { receive_window: 20 * 1_460, ..config("reno") };
    let mut run = Run::one(&open_path("100M", 100), config, WITHOUT_END, 1);
    let window = run.mean_window(0.1, 5.0, 25.0);
    assert!((19.0..20.01).contains(&window), "{window}");
    assert!(run.source(0).window().unwrap() < 50.0);
}

/// Mean windows at a loss rate, of a flow that nothing else holds.
fn window_at(law: &str, loss: &str, rtt_ms: u64, seconds: (f64, f64), seed: u64) -> (f64, f64) {
    let mut link = open_path("1G", rtt_ms);
    link.loss = loss.parse().unwrap();
    let mut run = Run::one(&link, undelayed(law), WITHOUT_END, seed);
    run.until(seconds.0);
    let before = run.source(0).stats();
    let window = run.mean_window(rtt_ms as f64 / 1e3, seconds.0, seconds.1);
    let after = run.source(0).stats();
    let sent = (after.segments_sent - before.segments_sent) as f64;
    let lost = (after.segments_lost - before.segments_lost) as f64;
    assert!(lost >= 10.0, "too few losses to judge by: {lost}");
    (window, lost / sent)
}

/// 1.22/sqrt(p) is for losses at equal distances and a repair that takes no time (Mathis et al.,
/// 1997).
#[test]
fn reno_follows_its_response_function() {
    for (every, end) in [(100u32, 60.0), (1_000, 100.0), (10_000, 150.0)] {
        let p = 1.0 / f64::from(every);
        let (window, _) = window_at("reno", &format!("every:{every}"), 100, (20.0, end), 1);
        // A round trip at W/2 for the repair, then W/2 to W: W/2 + 3 W^2/8 + 3 W/4 = 1/p packets in
        // W/2 + 2 round trips.
        let top = (-1.25 + (1.5625f64 + 1.5 / p).sqrt()) / 0.75;
        let exact = 1.0 / p / (top / 2.0 + 2.0);
        assert!((0.95..1.05).contains(&(window / exact)), "p = {p}: {window}, not {exact}");
        if p < 2e-3 {
            let mathis = 1.22 / p.sqrt();
            assert!((0.9..1.1).contains(&(window / mathis)), "p = {p}: {window}, not {mathis}");
        }
    }
}

/// 1.31/sqrt(p) for losses at random, an ACK for each packet and no time-outs (Mathis et al., 1997).
#[test]
fn reno_at_random_loss() {
    let (window, p) = window_at("reno", "0.1%", 100, (20.0, 300.0), 1);
    let ratio = window * p.sqrt() / 1.31;
    assert!((0.9..1.1).contains(&ratio), "p = {p}: {window}, {ratio}");
}

/// 1.054 (RTT/p)^0.75 (RFC 9438 fig. 4).
fn cubic_response(p: f64, rtt_ms: u64) -> f64 {
    1.054 * (rtt_ms as f64 / 1e3 / p).powf(0.75)
}

/// The response function has each loss at the plateau. A flow that begins there stays there.
#[test]
fn cubic_follows_its_response_function() {
    for (every, rtt_ms, end) in [(1_000u64, 200, 100.0), (10_000, 100, 100.0), (10_000, 200, 100.0)]
    {
        let expected = cubic_response(1.0 / every as f64, rtt_ms);
        // Slow start is at a window of n when it comes to segment n; the mean is 0.925 of the top.
        let first = (expected / 0.925) as u64;
        let losses: Vec<_> = (0..60).map(|n| (first + n * every).to_string()).collect();
        let loss = format!("list:{}", losses.join(","));
        let law = "cubic:fast_convergence=false";
        let (window, _) = window_at(law, &loss, rtt_ms, (20.0, end), 1);
        let ratio = window / expected;
        assert!((0.9..1.1).contains(&ratio), "every {every}, {rtt_ms} ms: {window}, {ratio}");
    }
}

/// Fast convergence takes a window that is a little below the one before for a rival's arrival, and
/// costs some of the mean.
#[test]
fn cubic_with_fast_convergence_is_a_little_below() {
    for (every, rtt_ms) in [(1_000u32, 200), (10_000, 200)] {
        let loss = format!("every:{every}");
        let (window, p) = window_at("cubic", &loss, rtt_ms, (30.0, 150.0), 1);
        let ratio = window / cubic_response(p, rtt_ms);
        assert!((0.85..1.05).contains(&ratio), "every {every}: {window}, {ratio}");
    }
}

/// Where Reno is faster CUBIC is as fast: RFC 9438 §4.3.
#[test]
fn cubic_is_as_fast_as_reno_where_that_is_faster() {
    let reno = window_at("reno", "every:1000", 20, (10.0, 60.0), 1).0;
    let cubic = window_at("cubic", "every:1000", 20, (10.0, 60.0), 1).0;
    let alone = window_at("cubic:friendly=false", "every:1000", 20, (10.0, 60.0), 1).0;
    assert!((0.9..1.15).contains(&(cubic / reno)), "{cubic} {reno}");
    assert!(alone < 0.5 * reno, "{alone} {reno}");
}

/// Everything arrives once and in order, whatever the path does.
#[test]
fn everything_arrives_under_random_impairments() {
    let mut rng = Rng::new(2_024);
    for seed in 0..60 {
        let mut draw = |texts: &[&'static str]| texts[rng.below(texts.len() as u64) as usize];
        let mut link = |reverse: bool| {
            let rtt_ms = if reverse { 1 } else { 30 };
            let mut link = open_path(draw(&["2M", "20M", "200M"]), rtt_ms);
            link.queue = draw(&["unlimited", "5p", "50p", "bdp:30ms"]).parse().unwrap();
            link.loss = draw(&["none", "1%", "10%", "ge:loss=5%,burst=8"]).parse().unwrap();
            link.jitter = draw(&["0", "2ms", "20ms:reorder"]).parse().unwrap();
            link.reorder = match draw(&["", "2%:3", "20%:7", "5%:40ms"]) {
                "" => None,
                text => Some(text.parse().unwrap()),
            };
            link.duplicate = draw(&["0", "1%", "20%"]).parse().unwrap();
            link.corrupt = draw(&["0", "0.1%", "5%"]).parse().unwrap();
            // No divisor of a minute: a time-out of that length would meet each of them.
            link.blackouts = match draw(&["", "", "100ms+700ms", "50ms+20ms/470ms"]) {
                "" => Vec::new(),
                text => vec![text.parse().unwrap()],
            };
            link
        };
        let (there, back) = (link(false), link(true));
        let config = TcpConfig {
            law: draw(&["reno", "cubic", "reno:window=1", "udt"]).parse().unwrap(),
            receive_window: draw(&["3000", "40000", "1000000000"]).parse().unwrap(),
            packet_size: draw(&["576", "1500", "9000"]).parse().unwrap(),
            delayed_ack: (draw(&["", "40"]) != "").then_some(Duration::from_millis(40)),
            proportional: draw(&["", "yes"]) != "",
            ..TcpConfig::default()
        };
        let bytes = draw(&["1", "30000", "1000000"]).parse().unwrap();
        let context = format!("seed {seed}: {there} / {back}, {config:?}, {bytes}");
        let mut run = Run::new((&there, &back), &[(config, transfer(bytes))], seed);
        let mut seconds = 0.0;
        while run.source(0).transfers().completed == 0 && seconds < 100_000.0 {
            // Time-outs of a minute, as many as there are ACKs in a burst of losses.
            seconds += 10.0;
            run.until(seconds);
        }
        assert_eq!(run.source(0).transfers().completed, 1, "{context}");
        assert_eq!(
            (run.sink(0).received(), run.sink(0).stats().completed),
            (bytes, 1),
            "{context}"
        );
        let (stats, sink) = (run.source(0).stats(), run.sink(0).stats());
        assert_eq!(stats.segments_acked, stats.segments_sent - stats.segments_retransmitted);
        assert!(sink.duplicates <= sink.segments, "{context}");
    }
}

#[test]
fn a_flow_survives_a_blackout() {
    let mut link = path("20M", 40);
    link.blackouts = vec!["5s+3s".parse().unwrap()];
    let mut run = Run::one(&link, config("cubic"), WITHOUT_END, 1);
    let before = run.goodput(1, 2.0, 5.0)[0];
    // The time-outs double: within as long again as the blackout was, and a second, all is well.
    let after = run.goodput(1, 12.0, 20.0)[0];
    assert!(after > 0.9 * before, "{before} {after}");
    assert!((2..=8).contains(&run.source(0).stats().timeouts));
}

/// Slow start fills a long path's queue and loses half of a window in one round trip.
#[test]
fn slow_start_into_a_small_queue() {
    for law in ["reno", "cubic"] {
        let link = LinkConfig { queue: "200p".parse().unwrap(), ..path("200M", 80) };
        let mut run = Run::one(&link, config(law), WITHOUT_END, 1);
        run.until(6.0);
        let stats = run.source(0).stats();
        assert!(stats.segments_lost > 200, "{law}: {stats:?}");
        assert!(stats.timeouts <= 1, "{law}: {stats:?}");
    }
}

#[test]
fn short_transfers_arrive_over_time() {
    let workload = Workload::Arrivals {
        start: Time::ZERO,
        stop: Time::from_secs(60),
        rate: 20.0,
        bytes: 50_000,
        most: 30,
    };
    let link = path("100M", 40);
    let mut run = Run::new((&link, &link), &[(config("reno"), workload)], 4);
    run.until(70.0);
    let transfers = run.source(0).transfers();
    assert!((1_100..1_300).contains(&transfers.begun), "{transfers:?}");
    assert_eq!((transfers.completed, transfers.refused), (transfers.begun, 0));
    assert_eq!(transfers.bytes, transfers.completed * 50_000);
    assert_eq!(run.sink(0).received(), transfers.bytes);
    assert_eq!(run.source(0).concurrent(), 0);
    // SYN, then 10, 15 and 10 segments: four round trips of 40 ms and a bit.
    let time = transfers.mean_time().as_secs_f64();
    assert!((0.16..0.25).contains(&time), "{time}");
}

#[test]
fn more_transfers_than_there_may_be_are_refused() {
    let workload = Workload::Arrivals {
        start: Time::ZERO,
        stop: Time::from_secs(20),
        rate: 50.0,
        bytes: 100_000,
        most: 10,
    };
    let link = path("5M", 40);
    let mut run = Run::new((&link, &link), &[(config("reno"), workload)], 4);
    for second in 1..20 {
        run.until(f64::from(second));
        assert!(run.source(0).concurrent() <= 10);
    }
    run.until(60.0);
    let transfers = run.source(0).transfers();
    assert_eq!(transfers.completed, transfers.begun);
    assert!(transfers.refused > 500, "{transfers:?}");
    assert_eq!(run.sink(0).received(), transfers.begun * 100_000);
}

#[test]
fn a_flow_stops_when_it_is_to() {
    let workload =
        Workload::Bulk { start: Time::from_secs(1), stop: Time::from_secs(3), bytes: None };
    let mut run = Run::one(&path("10M", 40), config("reno"), workload, 1);
    run.until(1.0);
    assert_eq!(run.sink(0).received(), 0);
    run.until(4.0);
    let received = run.sink(0).received();
    assert!((2_000_000..2_500_000).contains(&received), "{received}");
    assert_eq!((run.source(0).transfers().completed, run.source(0).concurrent()), (1, 0));
    run.until(9.0);
    assert_eq!(run.sink(0).received(), received);
}

/// A run is a function of what it was given, also when it is looked at in between.
#[test]
fn runs_repeat() {
    let run = |steps: u32| {
        let mut link = path("50M", 30);
        link.loss = "0.1%".parse().unwrap();
        let short = Workload::Arrivals {
            start: Time::ZERO,
            stop: Time::from_secs(100),
            rate: 10.0,
            bytes: 20_000,
            most: 9,
        };
        let flows = [
            (config("reno"), WITHOUT_END),
            (config("cubic"), WITHOUT_END),
            (config("reno"), short),
        ];
        let mut run = Run::new((&link, &link), &flows, 9);
        for step in 1..=steps {
            run.until(6.0 * f64::from(step) / f64::from(steps));
        }
        let flows: Vec<_> = (0..3)
            .map(|flow| {
                let (received, sink) = (run.sink(flow).received(), run.sink(flow).stats());
                let window = run.source(flow).window().map(f64::to_bits);
                let transfers = run.source(flow).transfers();
                (received, sink, window, transfers, run.source(flow).stats())
            })
            .collect();
        let links: Vec<_> =
            run.simulation.network().hops().iter().map(|hop| hop.link.stats()).collect();
        (run.simulation.packets(), run.simulation.events(), links, flows)
    };
    let once = run(1);
    assert_eq!(run(1), once);
    assert_eq!(run(17), once);
}
