//! TCP flows in the simulator on paths that do nothing wrong.

mod tcp_run;

use core::time::Duration;

use farhaul_base::Time;
use farhaul_sim::indices::jain;
use farhaul_sim::{Plan, TcpConfig, Workload};
use tcp_run::{
    PAYLOAD_SHARE, Run, WITHOUT_END, config, open_path, path, read, transfer, undelayed,
};

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
        let index = jain(&rates).expect("throughput");
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
        link.loss = read("0.1%");
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

/// Slow start overruns a queue that drops early, retransmissions among the rest. Below the window the
/// sender then sends no more than arrives, or each would be dropped again.
#[test]
fn a_queue_that_drops_retransmissions_is_no_collapse() {
    for law in ["reno", "cubic"] {
        let text = format!(
            "duration = '30s'\n[[link]]\nfrom = 'a'\nto = 'b'\nrate = '50M'\ndelay = '20ms'\n\
             queue = 'red:limit=1000p,min=50,max=150'\n[[flow]]\nfrom = 'a'\nto = 'b'\n\
             protocol = 'tcp-{law}'"
        );
        let plan = Plan::parse(&text, &[], None).expect("a scenario");
        let report = plan.point(0).expect("a point").scenario.run();
        let flow = &report.flows[0];
        assert!(flow.loss_rate < 0.03, "{law}: {}", flow.loss_rate);
        assert!(flow.throughput_bps > 40e6, "{law}: {}", flow.throughput_bps);
    }
}
