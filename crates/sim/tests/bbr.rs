//! The law `bbr` on paths that lose packets by themselves and whose delay varies.

use farhaul_sim::{FlowReport, Plan};

/// One flow for eight seconds, its start included, on 1 Gb/s with a queue of one bandwidth-delay product.
fn run(law: &str, rtt_ms: f64, keys: &str) -> FlowReport {
    let queue = 1e9 * rtt_ms / 1e3 / 12e3;
    let text = format!(
        "duration = \"8s\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"1G\"\n\
         delay = \"{}ms\"\nqueue = \"{queue:.0}p\"\n{keys}\n\
         [[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\ncc = \"{law}\"\n",
        rtt_ms / 2.0
    );
    let plan = Plan::parse(&text, &[], None).expect("a scenario");
    let mut report = plan.point(0).expect("its only point").scenario.run();
    report.flows.remove(0)
}

fn share(flow: &FlowReport) -> f64 {
    flow.throughput_bps / 1e9
}

/// The bounds lie a tenth below what was measured; as the draft has it, 3% leave a path of 50 ms idle.
#[test]
fn losses_of_the_path_leave_most_of_it() {
    for (rtt_ms, loss, least) in [
        (1.0, "1%", 0.84),
        (1.0, "3%", 0.77),
        (10.0, "1%", 0.83),
        (10.0, "3%", 0.80),
        (50.0, "1%", 0.77),
        (50.0, "3%", 0.72),
        (200.0, "3%", 0.40),
    ] {
        let flow = run("bbr", rtt_ms, &format!("loss = \"{loss}\""));
        assert!(share(&flow) >= least, "{rtt_ms} ms, {loss}: {:.3}", share(&flow));
    }
    let draft = run("bbr:own_loss=0,queue=10", 50.0, "loss = \"3%\"");
    assert!(share(&draft) < 0.3, "{:.3}", share(&draft));
}

/// Neither Startup nor a probe fills the queue to its end.
#[test]
fn a_path_without_loss_loses_next_to_nothing() {
    for rtt_ms in [1.0, 10.0, 50.0, 200.0] {
        let flow = run("bbr", rtt_ms, "");
        assert!(flow.loss_rate < 5e-4, "{rtt_ms} ms: {}", flow.loss_rate);
    }
}

/// Two flows for 40 s, of which the last 20 count, on a queue of `queue` bandwidth-delay products: the share of each
/// in half of what both have.
fn pair(rate_mbps: f64, rtt_ms: f64, queue: f64, flows: [&str; 2]) -> [f64; 2] {
    let packets = (queue * rate_mbps * 1e3 * rtt_ms / 12e3).max(10.0);
    let mut text = format!(
        "duration = \"40s\"\nmeasure_from = \"20s\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\n\
         rate = \"{rate_mbps}M\"\ndelay = \"{}ms\"\nqueue = \"{packets:.0}p\"\n",
        rtt_ms / 2.0
    );
    for (number, flow) in flows.iter().enumerate() {
        let start = 2 * number;
        text += &format!("[[flow]]\nfrom = \"a\"\nto = \"b\"\nstart = \"{start}s\"\n{flow}\n");
    }
    let plan = Plan::parse(&text, &[], None).expect("a scenario");
    let report = plan.point(0).expect("its only point").scenario.run();
    let rates = [report.flows[0].throughput_bps, report.flows[1].throughput_bps];
    rates.map(|rate| rate / ((rates[0] + rates[1]) / 2.0))
}

const BBR: &str = "cc = \"bbr\"";
/// TCP with the draft's law, without what `bbr` departs in: own losses, aim at a short queue.
const TCP_DRAFT: &str = "protocol = \"tcp-bbr:own_loss=0,queue=10\"";

#[test]
fn two_flows_share_a_path() {
    for (rate, rtt, queue) in
        [(100.0, 20.0, 1.0), (100.0, 20.0, 4.0), (1000.0, 10.0, 1.0), (1000.0, 50.0, 1.0)]
    {
        let [one, two] = pair(rate, rtt, queue, [BBR, BBR]);
        let jain = 4.0 / (2.0 * (one * one + two * two));
        assert!(jain >= 0.95, "{rate} Mb/s, {rtt} ms, {queue}: {jain:.3}");
    }
}

/// The mean queue, milliseconds, and the used share of the line of three flows that begin one after another.
fn three_flows(flow: &str, seed: u64) -> (f64, f64) {
    let mut text = format!(
        "seed = {seed}\nduration = \"30s\"\nmeasure_from = \"10s\"\n[[link]]\nfrom = \"a\"\n\
         to = \"b\"\nrate = \"500M\"\ndelay = \"15ms\"\nqueue = \"2500p\"\n"
    );
    for start in 0..3 {
        text += &format!("[[flow]]\nfrom = \"a\"\nto = \"b\"\nstart = \"{start}s\"\n{flow}\n");
    }
    let plan = Plan::parse(&text, &[], None).expect("a scenario");
    let link = &plan.point(0).expect("its only point").scenario.run().links[0];
    (link.queue.mean * 12e3 / 500e3, link.utilisation.unwrap_or_default())
}

/// Each aims at a queue of its own, which is short. That of three is half as long as beside TCP with the draft; from
/// seed to seed it varies by a third, so that one seed shows nothing.
#[test]
fn three_flows_leave_a_shorter_queue_than_the_draft() {
    let mut queues = [0.0, 0.0];
    for seed in 1..=3 {
        let (queue, used) = three_flows(BBR, seed);
        assert!(used > 0.97, "seed {seed}: {used:.3} used");
        queues[0] += queue / 3.0;
        queues[1] += three_flows(TCP_DRAFT, seed).0 / 3.0;
    }
    let [own, tcp] = queues;
    assert!(own < 0.65 * tcp, "{own:.1} of {tcp:.1} ms");
}

#[test]
fn cubic_beside_it_keeps_half_of_its_share_and_leaves_half() {
    let cubic = "protocol = \"tcp-cubic\"";
    for (rate, rtt, queue) in
        [(100.0, 20.0, 1.0), (100.0, 20.0, 4.0), (1000.0, 20.0, 1.0), (1000.0, 50.0, 4.0)]
    {
        let [own, _] = pair(rate, rtt, queue, [BBR, cubic]);
        assert!((0.5..=1.5).contains(&own), "{rate} Mb/s, {rtt} ms, {queue}: {own:.2}");
    }
}

#[test]
fn a_delay_that_varies_is_no_queue() {
    for (loss, least) in [("0", 0.84), ("1%", 0.77)] {
        let flow = run("bbr", 50.0, &format!("jitter = \"2ms\"\nloss = \"{loss}\""));
        assert!(share(&flow) >= least, "{loss}: {:.3}", share(&flow));
    }
}

/// At 10 ms the shortest round trips are those of packets that were alone on the path; held against them a flow took
/// 80 to 93% of the line, by chance, and takes 92.
#[test]
fn jitter_on_a_short_path_is_no_queue() {
    for seed in 1..=4 {
        let text = format!(
            "seed = {seed}\nduration = \"15s\"\nmeasure_from = \"7s\"\n[[link]]\nfrom = \"a\"\n\
             to = \"b\"\nrate = \"1G\"\ndelay = \"5ms\"\njitter = \"2ms\"\nqueue = \"833p\"\n\
             [[flow]]\nfrom = \"a\"\nto = \"b\"\n{BBR}\n"
        );
        let plan = Plan::parse(&text, &[], None).expect("a scenario");
        let report = plan.point(0).expect("its only point").scenario.run();
        let share = share(&report.flows[0]);
        assert!(share > 0.89, "seed {seed}: {share:.3}");
    }
}

/// Megabits a second over six seconds, in which the rate drops to about a tenth after two and is back after four.
fn over_a_drop(flow: &str, rate_mbps: u32, low_mbps: u32, rtt_ms: u32, packets: u32) -> f64 {
    let text = format!(
        "duration = \"6s\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"{rate_mbps}M\"\n\
         delay = \"{}ms\"\nqueue = \"{packets}p\"\n\
         rate_changes = [\"2s:{low_mbps}M\", \"4s:{rate_mbps}M\"]\n\
         [[flow]]\nfrom = \"a\"\nto = \"b\"\n{flow}\n",
        rtt_ms / 2
    );
    let plan = Plan::parse(&text, &[], None).expect("a scenario");
    plan.point(0).expect("its only point").scenario.run().flows[0].throughput_bps / 1e6
}

/// Losses have bound the rate, and most of what was sent again is lost as well. What was in the queue must not count
/// as in flight for long, nor the bound stay until the next probe is due: it had 0.7 of what TCP with the draft has.
#[test]
fn a_rate_that_comes_back_is_used() {
    for (rate, low, rtt, packets) in [(1000, 100, 50, 4166), (110, 13, 68, 374)] {
        let own = over_a_drop(BBR, rate, low, rtt, packets);
        let tcp = over_a_drop(TCP_DRAFT, rate, low, rtt, packets);
        assert!(own > 0.85 * tcp, "{rate} Mb/s, {rtt} ms: {own:.0} of {tcp:.0} Mb/s");
    }
}

/// What was under way is lost, and no more than that is sent into the cut; what is lost is no verdict on the path.
#[test]
fn a_cut_path_is_used_again_at_once() {
    for seed in 1..=6 {
        let text = format!(
            "seed = {seed}\nduration = \"6s\"\nmeasure_from = \"4s\"\nhosts = \"vm\"\n[[link]]\n\
             from = \"a\"\nto = \"b\"\nrate = \"87M\"\ndelay = \"23ms\"\nqueue = \"66p\"\njitter = \"1900us\"\n\
             blackouts = [\"1.751s+934ms\"]\n[[flow]]\nfrom = \"a\"\nto = \"b\"\n{BBR}\n"
        );
        let plan = Plan::parse(&text, &[], None).expect("a scenario");
        let report = plan.point(0).expect("its only point").scenario.run();
        let flow = &report.flows[0];
        let share = flow.throughput_bps / 87e6;
        assert!(share > 0.88, "seed {seed}: {share:.3}");
        let again = flow.retransmitted as f64 / flow.packets_sent as f64;
        assert!(again < 0.06, "seed {seed}: {again:.3}");
    }
}
