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

#[test]
fn a_delay_that_varies_is_no_queue() {
    for (loss, least) in [("0", 0.84), ("1%", 0.77)] {
        let flow = run("bbr", 50.0, &format!("jitter = \"2ms\"\nloss = \"{loss}\""));
        assert!(share(&flow) >= least, "{loss}: {:.3}", share(&flow));
    }
}
