//! UDT flows in the simulator.

mod dumbbell;

use dumbbell::{path, received, udt_flows, udt_flows_with};
use farhaul_base::Time;
use farhaul_engine::Config;
use farhaul_sim::indices::jain;
use farhaul_sim::{Ended, Plan};

#[test]
fn one_flow_fills_its_link() {
    for (rate, bits, rtt_ms) in [("10M", 10e6, 40), ("100M", 100e6, 10), ("1G", 1e9, 20)] {
        let mut simulation = udt_flows(&path(rate, rtt_ms), 1, 1);
        simulation.run_until(Time::from_secs(10));
        let before = received(&mut simulation, 1)[0];
        simulation.run_until(Time::from_secs(20));
        let share = (received(&mut simulation, 1)[0] - before) as f64 * 8.0 / 10.0 / bits;
        // 1456 of 1500 bytes are the most that an application can get: 97%.
        assert!((0.88..0.972).contains(&share), "{rate}, {rtt_ms} ms: {share}");
    }
}

/// TCP's laws over UDT's engine, which reports each hole by itself.
#[test]
fn laws_of_tcp_fill_a_link() {
    for law in ["reno", "cubic"] {
        let config = Config { law: law.parse().expect("a law"), ..Config::default() };
        let mut simulation = udt_flows_with(&config, &path("50M", 20), 1, 1);
        simulation.run_until(Time::from_secs(5));
        let before = received(&mut simulation, 1)[0];
        simulation.run_until(Time::from_secs(25));
        let share = (received(&mut simulation, 1)[0] - before) as f64 * 8.0 / 20.0 / 50e6;
        // 97% is the most that an application can get.
        assert!((0.92..0.972).contains(&share), "{law}: {share}");
    }
}

/// However many reports a round trip brings, the window is reduced once: the mean is that of TCP,
/// 1.22/sqrt(p).
#[test]
fn reno_over_udt_follows_its_response_function() {
    let config = Config { law: "reno".parse().expect("a law"), ..Config::default() };
    for (loss, rtt_ms) in [("every:1000", 50), ("every:10000", 50)] {
        let mut link = path("1G", rtt_ms);
        link.loss = loss.parse().expect("a loss model");
        let p = link.loss.mean_loss(12_000);
        let mut simulation = udt_flows_with(&config, &link, 1, 1);
        simulation.run_until(Time::from_secs(10));
        let before = received(&mut simulation, 1)[0];
        simulation.run_until(Time::from_secs(60));
        let packets = (received(&mut simulation, 1)[0] - before) as f64 / 1456.0;
        let window = packets * rtt_ms as f64 / 1e3 / 50.0;
        let ratio = window * p.sqrt() / 1.22;
        assert!((0.85..1.15).contains(&ratio), "{loss}: {window}, {ratio}");
    }
}

#[test]
fn flows_share_a_link() {
    let mut simulation = udt_flows(&path("100M", 20), 4, 5);
    simulation.run_until(Time::from_secs(20));
    let before = received(&mut simulation, 4);
    simulation.run_until(Time::from_secs(60));
    let after = received(&mut simulation, 4);
    let rates: Vec<f64> = after.iter().zip(&before).map(|(a, b)| (a - b) as f64).collect();
    let index = jain(&rates).expect("throughput");
    assert!(index > 0.95, "{index}: {rates:?}");
}

/// A run is a function of what it was given: nothing of it differs the second time, nor when it is
/// stopped and looked at in between.
#[test]
fn runs_repeat() {
    let run = |steps: u64| {
        let mut noisy = path("50M", 30);
        noisy.loss = "0.1%".parse().expect("a loss model");
        let mut simulation = udt_flows(&noisy, 3, 9);
        for step in 1..=steps {
            simulation.run_until(Time::from_millis(6_000 * step / steps));
        }
        let links: Vec<_> = simulation.network().hops().iter().map(|h| h.link.stats()).collect();
        let received = received(&mut simulation, 3);
        (simulation.packets(), simulation.events(), links, received)
    };
    let once = run(1);
    assert_eq!(run(1), once);
    assert_eq!(run(17), once);
}

/// gu05 Figure 4-12: a path of 100 ms needs no queue of its length. What a window held back does not
/// flood the queue when an ACK opens it.
#[test]
fn a_short_queue_on_a_long_path_is_enough() {
    let text = "duration = \"12s\"\nmeasure_from = \"7s\"\n\
        [[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"200M\"\ndelay = \"50ms\"\nqueue = \"20p\"\n\
        [[flow]]\nfrom = \"a\"\nto = \"b\"\noptions = { max_segments = 1 }\n";
    let plan = farhaul_sim::Plan::parse(text, &[], None).expect("a scenario");
    let report = plan.point(0).expect("its only point").scenario.run();
    let flow = &report.flows[0];
    assert!(flow.packet_throughput_bps > 0.75 * 200e6, "{}", flow.packet_throughput_bps);
}

/// A camera's images over a lossy link: without a time to live all come, with one those that are not
/// late by more than it takes to send one that was begun.
#[test]
fn messages_come_or_are_given_up() {
    let report = |messages: &str| {
        let text = format!(
            "duration = '20s'\n[[link]]\nfrom = 'a'\nto = 'b'\nrate = '20M'\ndelay = '20ms'\n\
             loss = '5%'\n[[flow]]\nfrom = 'a'\nto = 'b'\ncc = 'udt:noisy,noise=0.2'\nstop = '19s'\n\
             messages = {{ size = '20kB', every = '20ms'{messages} }}"
        );
        let plan = Plan::parse(&text, &[], None).expect("a scenario");
        let report = plan.point(0).expect("a point").scenario.run();
        let messages = report.flows[0].messages.expect("messages");
        (messages, messages.delay_ms.expect("delays"))
    };
    let (all, delay) = report("");
    // Of the last second's some are cut off.
    assert!(all.sent.abs_diff(950) <= 2 && all.delivered >= 930, "{all:?}");
    // 20 ms on the way, 8 ms in transmission, and a round trip for what is lost.
    assert!(delay.min >= 28.0 && delay.mean > 60.0, "{all:?}");
    let (timely, shorter) = report(", ttl = '60ms', in_order = false");
    assert!((500..940).contains(&timely.delivered), "{timely:?}");
    assert!(shorter.mean < delay.mean && shorter.max < 300.0, "{timely:?}");
}

/// A connection that broke, or never was, is told of; one that ends as it should is not.
#[test]
fn how_a_connection_ended() {
    let scenario = |link: &str, flow: &str| {
        let text = format!(
            "duration = '20s'\n[[link]]\nfrom = 'a'\nto = 'b'\nrate = '10M'\ndelay = '20ms'\n{link}\n\
             [[flow]]\nfrom = 'a'\nto = 'b'\n{flow}"
        );
        let plan = Plan::parse(&text, &[], None).expect("a scenario");
        plan.point(0).expect("a point").scenario
    };
    let ended = |link: &str, flow: &str| scenario(link, flow).run().flows[0].ended;
    assert_eq!(ended("", ""), None);
    assert_eq!(ended("", "bytes = '1MB'"), None);
    assert_eq!(ended("", "stop = '5s'"), None);
    // It has not begun. A file cannot say so.
    let mut late = scenario("", "");
    late.flows[0].start = late.duration * 2;
    assert_eq!(late.run().flows[0].ended, None);
    assert_eq!(ended("loss = 1", ""), Some(Ended::NeverConnected));
    let brief = "options = { peer_timeout = '4s', linger = '1s' }";
    assert_eq!(ended("blackouts = '5s+20s'", brief), Some(Ended::Broken));
    // The way there only: what the receiver has to say comes through.
    let there = "blackouts = '5s+20s'\nreverse = { blackouts = '19s+1ms' }";
    assert_eq!(ended(there, brief), Some(Ended::Broken));
    let sent = format!("{brief}\nbytes = '20kB'\nstart = '4900ms'");
    assert_eq!(ended("blackouts = '5s+20s'", &sent), Some(Ended::NotAcknowledged));
    // Cut off before it noticed.
    assert_eq!(ended("blackouts = '5s+20s'", "stop = '6s'"), None);
}
