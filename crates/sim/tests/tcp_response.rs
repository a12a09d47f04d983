//! TCP's laws against their response functions: the mean window at a loss rate.

mod tcp_run;

use tcp_run::{Run, WITHOUT_END, open_path, read, undelayed};

/// Mean windows at a loss rate, of a flow that nothing else holds.
fn window_at(law: &str, loss: &str, rtt_ms: u64, seconds: (f64, f64), seed: u64) -> (f64, f64) {
    let mut link = open_path("1G", rtt_ms);
    link.loss = read(loss);
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

/// 1.054 (RTT/p)^0.75 (RFC 9438 §5.1).
fn cubic_response(p: f64, rtt_ms: u64) -> f64 {
    let x = rtt_ms as f64 / 1e3 / p;
    1.054 * x.sqrt() * x.sqrt().sqrt()
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
