mod pair;
use core::time::Duration;
use bytes::Bytes;
use farhaul_engine::Config;
use farhaul_link::LinkConfig;
use pair::{A, B, Net, data};

fn run(name: &str, link: LinkConfig, law: &str, seconds: u64, seed: u64, log: bool) {
    let back = LinkConfig { rate: link.rate, delay: link.delay, queue: link.queue, loss: link.loss.clone(), reorder: link.reorder, ..LinkConfig::default() };
    let mut net = Net::asymmetric(link.clone(), back, seed);
    let config = Config { law: law.parse().unwrap(), ..Config::default() };
    let (a, b) = net.connect(config.clone(), config);
    let pattern = Bytes::from(data(1, 1 << 20));
    let mut read = 0u64;
    let start = net.now;
    let mut series = vec![];
    let mut last = 0;
    let step = Duration::from_millis(if log { 250 } else { 1000 });
    let mut worst = u64::MAX;
    let wall = std::time::Instant::now();
    for _ in 0..(seconds * 1000 / step.as_millis() as u64) {
        let until = net.now + step;
        loop {
            while net.update(A, a, |c| c.send_bytes(pattern.clone())).is_ok() {}
            read += net.read(B, b).len() as u64;
            if !net.step(until) { break }
        }
        let s = net.stats(A, a);
        let r = net.stats(B, b);
        let got = read - last;
        last = read;
        worst = worst.min(got);
        series.push(got as f64 * 8.0 / step.as_secs_f64() / 1e6);
        if log {
            println!("{:6.2}s {:7.1} Mb/s period {:?} cwnd {} fwnd {} fl {} cap {:.0}M arr {:.0}M rtt {:?} min {:?} lost {} retx {} naks {} to {} tol {} reord {} dup {} oow {} inv {} rcvlost {}",
              (net.now - start).as_secs_f64(), got as f64*8.0/step.as_secs_f64()/1e6, s.instant.period, s.instant.congestion_window, s.instant.flow_window, s.instant.in_flight,
              s.instant.capacity/1e6, s.instant.arrival_rate/1e6, s.instant.rtt, s.instant.rtt_min, s.total.counters.send_lost, s.total.counters.packets_retransmitted, s.total.counters.naks_received, s.total.counters.timeouts,
              r.instant.reorder_tolerance, r.total.counters.reordered, r.total.counters.duplicates, r.total.counters.out_of_window, s.total.counters.invalid, r.total.counters.receive_lost);
        }
    }
    let rate = link.rate.unwrap().bits_per_second() as f64;
    let s = net.stats(A, a);
    let r = net.stats(B, b);
    println!("{name} {law}: {:.2} Mb/s = {:.2}% of line; sent {} retx {} naksent {} acks {} q-drops {} loss {} reord {} wall {:?} datagrams {}", read as f64*8.0/seconds as f64/1e6, read as f64*800.0/seconds as f64/rate,
      s.total.counters.packets_sent, s.total.counters.packets_retransmitted, r.total.counters.naks_sent, r.total.counters.acks_sent, net.links[A].stats().dropped_queue, net.links[A].stats().dropped_loss, r.total.counters.reordered, wall.elapsed(), net.datagrams);
}

fn link(rate: &str, rtt: u64, loss: &str) -> LinkConfig {
    LinkConfig { rate: Some(rate.parse().unwrap()), delay: Duration::from_millis(rtt / 2), queue: format!("bdp:{rtt}ms").parse().unwrap(), loss: loss.parse().unwrap(), ..LinkConfig::default() }
}

#[test]
fn explore() {
    let log = std::env::var("LOG").is_ok();
    let which = std::env::var("WHICH").unwrap_or_default();
    for seed in 1..3 {
    if which.is_empty() || which == "a" { run("200M/80", link("200M", 80, "none"), "udt", 30, seed, log); }
    if which.is_empty() || which == "b" { run("200M/80", link("200M", 80, "none"), "udt4", 30, seed, log); }
    if which.is_empty() || which == "c" { run("200M/80 .1%", link("200M", 80, "0.1%"), "udt:noisy", 30, seed, log); }
    if which.is_empty() || which == "d" { run("1G/100", link("1G", 100, "none"), "udt", 30, seed, log); }
    if which.is_empty() || which == "e" { let mut l = link("10M", 10, "none"); l.reorder = Some("5%:3".parse().unwrap());
    run("10M/10 reorder", l, "udt", 30, seed, log);}
    if which.is_empty() || which == "f" { let mut l = link("200M", 80, "none"); l.reorder = Some("5%:2ms".parse().unwrap());
    run("200M/80 reorder 2ms", l, "udt", 30, seed, log);}
    if which == "g" { run("1G/100", link("1G", 100, "none"), "udt4", 30, seed, log); }
    if which == "h" { run("200M/80 .1%", link("200M", 80, "0.1%"), "udt", 30, seed, log); }
    if which == "i" { run("200M/80 1%", link("200M", 80, "1%"), "udt:noisy", 30, seed, log); }
    }
}
