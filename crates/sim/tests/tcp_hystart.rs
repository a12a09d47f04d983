//! What HyStart++ makes of cubic's slow start (RFC 9406).

mod tcp_run;

use core::time::Duration;

use farhaul_sim::TcpStats;
use tcp_run::{Run, WITHOUT_END, config, path, read};

/// Three seconds of a flow over 100 Mb/s and 40 ms, thus 333 packets on the way.
fn run(law: &str, queue: &str) -> TcpStats {
    let mut link = path("100M", 40);
    link.queue = read(queue);
    Run::one(&link, config(law), WITHOUT_END, 1).until(3.0).source(0).stats()
}

/// The round trip begins to grow at a window of 667 packets, which is known at 1,333; five round
/// trips by a quarter each make 4,000 of it.
#[test]
fn slow_start_ends_before_a_deep_queue_is_full() {
    let plain = run("cubic:hystart=false", "4000p");
    assert!(plain.segments_lost > 100, "{plain:?}");
    let hystart = run("cubic", "4000p");
    assert_eq!(hystart.segments_lost, 0, "{hystart:?}");
    // The full queue would be 480 ms.
    assert!(hystart.rtt.max < Duration::from_millis(475), "{hystart:?}");
    // And not too soon: the link is full from then on.
    assert!(hystart.segments_acked as f64 > 0.85 * 3.0 * 100e6 / 12e3, "{hystart:?}");
}

#[test]
fn less_is_lost_where_the_queue_is_shorter() {
    for queue in ["1000p", "2000p", "2667p"] {
        let [plain, hystart] = ["cubic:hystart=false", "cubic"].map(|law| run(law, queue));
        assert!(2 * hystart.segments_lost < plain.segments_lost, "{queue}: {plain:?} {hystart:?}");
    }
}
