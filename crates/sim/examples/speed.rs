//! How many packets are simulated a second: `speed [FLOWS] [SECONDS]`.
use farhaul_base::Time;
use farhaul_link::LinkConfig;
use farhaul_sim::*;
use std::time::Duration;

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u64>().unwrap());
    let flows = args.next().unwrap_or(1);
    let seconds = args.next().unwrap_or(20);
    let mut net = Network::new();
    let (a, b) = (net.node(), net.node());
    let config = LinkConfig {
        rate: Some("1G".parse().unwrap()),
        delay: Duration::from_millis(10),
        queue: "bdp:20ms".parse().unwrap(),
        ..LinkConfig::default()
    };
    net.link(a, b, config.clone(), 1);
    net.link(b, a, config, 2);
    let mut agents = Vec::new();
    let options = farhaul_engine::Config::default();
    for n in 0..flows as u32 {
        let (s, r) = (AgentId(2 * n), AgentId(2 * n + 1));
        let time = (Time::ZERO, Time::from_secs(seconds + 10));
        agents.push((
            a,
            Agent::Udt(Box::new(UdtAgent::sender(s, r, options.clone(), time, None, 2 * n as u64))),
        ));
        agents.push((
            b,
            Agent::Udt(Box::new(UdtAgent::receiver(r, options.clone(), 2 * n as u64 + 1))),
        ));
    }
    let mut sim = Simulation::new(net, agents);
    let started = std::time::Instant::now();
    sim.run_until(Time::from_secs(seconds));
    let wall = started.elapsed().as_secs_f64();
    let mut received = 0;
    for n in 0..flows as u32 {
        let Agent::Udt(agent) = sim.agent_mut(AgentId(2 * n + 1)) else { continue };
        received += agent.received;
    }
    let data = sim.network().hops()[0].link.stats().passed;
    println!(
        "{:.1} Mb/s, {} packets of data, {:.2} M/s, {:.1} times real time, {:.2} events a packet",
        received as f64 * 8e-6 / seconds as f64,
        data,
        data as f64 / wall / 1e6,
        seconds as f64 / wall,
        sim.events() as f64 / data as f64
    );
}
