//! TCP on paths that lose, delay, reorder, duplicate and damage.

mod tcp_run;

use core::time::Duration;

use farhaul_base::Rng;
use farhaul_link::LinkConfig;
use farhaul_sim::TcpConfig;
use tcp_run::{Run, WITHOUT_END, config, open_path, path, read, transfer, undelayed};

#[test]
fn single_losses_are_repaired_without_a_time_out() {
    for proportional in [true, false] {
        let mut link = open_path("50M", 40);
        link.loss = read("list:300,900,1500,2500,2600,2700");
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
        link.loss = read(&format!("list:20,900,{other}"));
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
    link.loss = read("list:101");
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
    link.loss = read("list:1");
    let mut run = Run::one(&link, config("reno"), transfer(1_460), 1);
    run.until(10.0);
    let time = run.source(0).transfers().mean_time();
    assert!((1.08..1.09).contains(&time.as_secs_f64()), "{time:?}");
    assert_eq!(run.source(0).stats().timeouts, 1);
}

/// Everything arrives once and in order, whatever the path does.
#[test]
fn everything_arrives_under_random_impairments() {
    let mut rng = Rng::new(2_024);
    for seed in 0..200 {
        let mut draw = |texts: &[&'static str]| texts[rng.below(texts.len() as u64) as usize];
        let mut link = |reverse: bool| {
            let rtt_ms = if reverse { 1 } else { 30 };
            let mut link = open_path(draw(&["2M", "20M", "200M"]), rtt_ms);
            link.queue = read(draw(&["unlimited", "5p", "50p", "bdp:30ms"]));
            link.loss = read(draw(&["none", "1%", "10%", "ge:loss=5%,burst=8"]));
            link.jitter = read(draw(&["0", "2ms", "20ms:reorder"]));
            link.reorder = match draw(&["", "2%:3", "20%:7", "5%:40ms"]) {
                "" => None,
                text => Some(read(text)),
            };
            link.duplicate = read(draw(&["0", "1%", "20%"]));
            link.corrupt = read(draw(&["0", "0.1%", "5%"]));
            // No divisor of a minute: a time-out of that length would meet each of them.
            link.blackouts = match draw(&["", "", "100ms+700ms", "50ms+20ms/470ms"]) {
                "" => Vec::new(),
                text => vec![read(text)],
            };
            link
        };
        let (there, back) = (link(false), link(true));
        let config = TcpConfig {
            law: read(draw(&["reno", "cubic", "reno:window=1", "udt"])),
            receive_window: read(draw(&["3000", "40000", "1000000000"])),
            packet_size: read(draw(&["576", "1500", "9000"])),
            delayed_ack: (draw(&["at once", "late"]) == "late")
                .then_some(Duration::from_millis(40)),
            proportional: draw(&["no", "yes"]) == "yes",
            ..TcpConfig::default()
        };
        let bytes = read(draw(&["1", "30000", "1000000"]));
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
    link.blackouts = vec![read("5s+3s")];
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
        let link = LinkConfig { queue: read("200p"), ..path("200M", 80) };
        let mut run = Run::one(&link, config(law), WITHOUT_END, 1);
        run.until(6.0);
        let stats = run.source(0).stats();
        assert!(stats.segments_lost > 200, "{law}: {stats:?}");
        assert!(stats.timeouts <= 1, "{law}: {stats:?}");
    }
}
