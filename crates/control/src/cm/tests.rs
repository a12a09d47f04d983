use super::*;

fn busy(now_ms: u64, in_flight: u32) -> View {
    View { now: Time::from_millis(now_ms), in_flight, ..View::default() }
}

/// A connection to 10.0.0.`host`, and what its law has set.
fn join(cm: &mut CongestionManager, host: u8) -> (Box<dyn Law>, Knobs) {
    let mut law = cm.join(IpAddr::from([10, 0, 0, host]), 0);
    let mut knobs = Knobs::default();
    law.init(&busy(0, 0), &mut knobs);
    (law, knobs)
}

#[test]
fn connections_to_one_host_share_a_window_and_what_it_has_learnt() {
    let mut cm = CongestionManager::new(10.0);
    let (mut a, mut of_a) = join(&mut cm, 1);
    assert_eq!(of_a.window, 10.0);
    a.on_ack(Seq::new(10), &busy(100, 0), &mut of_a);
    assert_eq!(of_a.window, 20.0, "slow start");
    let (mut b, mut of_b) = join(&mut cm, 1);
    a.on_timer(&busy(110, 10), &mut of_a);
    assert_eq!((of_a.window, of_b.window), (10.0, 10.0), "half each of what A had found");
    let (_, of_other) = join(&mut cm, 2);
    assert_eq!(of_other.window, 10.0, "another host, another window");

    // One loss for both, however many tell of it.
    b.on_loss(&[LossRange::single(Seq::new(3))], &busy(200, 10), &mut of_b);
    a.on_loss(&[LossRange::single(Seq::new(12))], &busy(210, 10), &mut of_a);
    assert_eq!((of_a.window, of_b.window), (5.0, 5.0));
    b.on_loss(&[LossRange::single(Seq::new(9))], &busy(400, 5), &mut of_b);
    assert_eq!(of_b.window, 2.5, "a round trip later it is news");

    // In avoidance a window of ACKs adds one packet to both together.
    b.on_ack(Seq::new(5), &busy(500, 0), &mut of_b);
    assert!((of_b.window - (5.0 + 0.5) / 2.0).abs() < 1e-9, "{}", of_b.window);
    b.close(&busy(600, 0), &mut of_b);
    a.on_timer(&busy(600, 2), &mut of_a);
    assert!((of_a.window - 5.5).abs() < 1e-9, "who leaves leaves his part");
}

#[test]
fn who_has_nothing_to_send_leaves_his_part() {
    let mut cm = CongestionManager::new(12.0);
    let (mut a, mut of_a) = join(&mut cm, 1);
    let (mut b, mut of_b) = join(&mut cm, 1);
    let idle = View { app_limited: true, ..busy(10, 1) };
    b.on_timer(&idle, &mut of_b);
    a.on_timer(&busy(10, 6), &mut of_a);
    assert_eq!((of_a.window, of_b.window), (11.0, 1.0));
    b.on_timer(&busy(20, 1), &mut of_b);
    assert_eq!(of_b.window, 6.0);
}

#[test]
fn a_time_out_leaves_the_least_to_the_one_that_had_it() {
    let mut cm = CongestionManager::new(16.0);
    let (mut a, mut of_a) = join(&mut cm, 1);
    a.on_timeout(&busy(1_000, 16), &mut of_a);
    assert_eq!((of_a.window, a.state()), (LEAST, "avoidance"));
    a.on_timer(&busy(1_010, 2), &mut of_a);
    assert_eq!(of_a.window, 8.0);
}

#[test]
fn a_part_of_less_than_the_least_window_is_spaced() {
    let mut cm = CongestionManager::new(2.0);
    let mut all: Vec<(Box<dyn Law>, Knobs)> = (0..4).map(|_| join(&mut cm, 1)).collect();
    let view = View { rtt: Duration::from_millis(20), ..busy(10, 1) };
    let (law, knobs) = &mut all[0];
    law.on_timer(&view, knobs);
    assert_eq!((knobs.window, knobs.period_ns), (0.5, 40e6), "half a packet each 20 ms");
    for (mut law, mut knobs) in all.split_off(1) {
        law.close(&view, &mut knobs);
    }
    let (law, knobs) = &mut all[0];
    law.on_timer(&view, knobs);
    assert_eq!((knobs.window, knobs.period_ns), (2.0, 0.0), "alone its window is enough");
}
