//! The law `haul` in the simulator: what a law for any path must do, as far as seconds show it. The
//! rest is the laboratory's experiment `default-law`.

use farhaul_sim::{Plan, Report};

/// Flows of `haul` with these round trips in ms, and TCP's where `protocol` says so, to one host over
/// a link of `rate` with 0.8 ms.
fn run(top: &str, link: &str, flows: &[(f64, &str)]) -> Report {
    let mut text = format!("{top}\n[[link]]\nname = \"l\"\nfrom = \"gate\"\nto = \"b\"\n");
    text += &format!("delay = \"400us\"\n{link}\n");
    for (flow, (rtt_ms, keys)) in flows.iter().enumerate() {
        let delay = (rtt_ms - 0.8) * 500.0;
        text += &format!(
            "[[link]]\nfrom = \"a{flow}\"\nto = \"gate\"\nrate = \"unlimited\"\n\
             delay = \"{delay}us\"\n[[flow]]\nfrom = \"a{flow}\"\nto = \"b\"\n{keys}\n"
        );
    }
    let plan = Plan::parse(&text, &[], None).expect("a scenario");
    plan.point(0).expect("its only point").scenario.run()
}

const HAUL: &str = "cc = \"haul\"";

/// Shares of the link that flows had in whole packets.
fn shares(report: &Report, rate: f64) -> Vec<f64> {
    report.flows.iter().map(|flow| flow.packet_throughput_bps / rate).collect()
}

fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    sum * sum / (shares.len() as f64 * shares.iter().map(|x| x * x).sum::<f64>())
}

#[test]
fn it_fills_a_path_within_two_seconds() {
    for (rate, bits, rtt_ms) in [
        ("10M", 10e6, 20.0),
        ("10M", 10e6, 200.0),
        ("100M", 100e6, 5.0),
        ("100M", 100e6, 100.0),
        ("1G", 1e9, 20.0),
    ] {
        let top = "duration = \"3s\"\nmeasure_from = \"2s\"";
        let report = run(top, &format!("rate = \"{rate}\""), &[(rtt_ms, HAUL)]);
        let share = shares(&report, bits)[0];
        assert!(share >= 0.9, "{rate}, {rtt_ms} ms: {share}");
    }
}

#[test]
fn random_loss_costs_little() {
    for (loss, least) in [("0.1%", 0.9), ("1%", 0.8)] {
        for rtt_ms in [5.0, 40.0] {
            let top = "duration = \"10s\"\nmeasure_from = \"2s\"";
            let link = format!("rate = \"100M\"\nloss = \"{loss}\"");
            let share = shares(&run(top, &link, &[(rtt_ms, HAUL)]), 100e6)[0];
            assert!(share >= least, "{loss}, {rtt_ms} ms: {share}");
        }
    }
}

#[test]
fn a_deep_buffer_stays_empty_and_a_shallow_one_loses_little() {
    let top = "duration = \"10s\"\nmeasure_from = \"2s\"";
    // 333 packets are on the path of 100 Mb/s and 40 ms.
    let link = "rate = \"100M\"\nqueue = \"bdp:160ms\"";
    let deep = run(top, link, &[(40.0, HAUL)]);
    assert!(deep.links[0].queue.mean < 0.1 * 333.0, "{:?}", deep.links[0]);
    let link = "rate = \"100M\"\nqueue = \"bdp:4ms\"";
    let shallow = run(top, link, &[(40.0, HAUL)]);
    let (share, loss) = (shares(&shallow, 100e6)[0], shallow.flows[0].loss_rate);
    assert!(share > 0.9 && loss < 0.02, "{share} {loss}");
}

#[test]
fn flows_share_whatever_their_round_trips() {
    let top = "duration = \"25s\"\nmeasure_from = \"10s\"";
    let link = "rate = \"50M\"\nqueue = \"bdp:100ms\"";
    let two = shares(&run(top, link, &[(1.0, HAUL), (200.0, HAUL)]), 50e6);
    assert!(jain(&two) > 0.95, "{two:?}");
    let flows = [1.0, 10.0, 50.0, 100.0, 200.0].map(|rtt_ms| (rtt_ms, HAUL));
    let many = shares(&run(top, link, &flows), 50e6);
    assert!(jain(&many) > 0.95, "{many:?}");
    assert!(many.iter().sum::<f64>() > 0.95, "{many:?}");
}

/// Of a fair share, which is half of the link, CUBIC must keep 40%; so must `haul`.
#[test]
fn beside_cubic_both_have_a_share() {
    for (rate, bits, rtt_ms) in [("20M", 20e6, 5.0), ("50M", 50e6, 5.0), ("50M", 50e6, 20.0)] {
        let top = "duration = \"40s\"\nmeasure_from = \"10s\"";
        let link = format!("rate = \"{rate}\"\nqueue = \"bdp:{rtt_ms}ms\"");
        let flows = [(rtt_ms, HAUL), (rtt_ms, "protocol = \"tcp-cubic\"")];
        let shares = shares(&run(top, &link, &flows), bits);
        assert!(shares.iter().all(|share| *share > 0.2), "{rate}, {rtt_ms} ms: {shares:?}");
    }
}

/// Packets that delays of the path keep waiting, at looks as well, and some that it loses.
#[test]
fn what_the_path_does_is_not_taken_for_a_competitor() {
    let top = "duration = \"30s\"\nmeasure_from = \"10s\"";
    let link = "rate = \"200M\"\nloss = \"0.1%\"\njitter = \"1ms\"";
    let two = shares(&run(top, link, &[(10.0, HAUL), (20.0, HAUL)]), 200e6);
    assert!(two.iter().sum::<f64>() > 0.8 && jain(&two) > 0.95, "{two:?}");
}

#[test]
fn a_cut_is_over_when_it_is_over() {
    let top = "duration = \"8s\"\nmeasure_from = \"6.2s\"\nmeasure_to = \"8s\"";
    let link = "rate = \"100M\"\nblackouts = \"3s+2s\"";
    let share = shares(&run(top, link, &[(40.0, HAUL)]), 100e6)[0];
    assert!(share > 0.9, "{share}");
}
