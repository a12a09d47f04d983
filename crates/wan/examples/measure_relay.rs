//! Measures a relay on the loopback interface: rate, delay and processor time.
//!
//! `cargo run --release -p farhaul-wan --example measure_relay -- [RATE [DELAY [OFFERED [SECONDS]]]]`
//!
//! with defaults `200M 40ms 240M 5`. A sender offers datagrams of 1472 bytes at OFFERED, the relay
//! passes them at RATE (`none`: without a limit) behind a queue of the bandwidth-delay product, and
//! a receiver takes what comes. Then the same with one datagram a millisecond, for the delay alone.

use std::error::Error;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

use farhaul_link::{LinkConfig, QueueConfig, Rate, parse_duration};
use farhaul_wan::{Relay, RelayConfig};

const PAYLOAD_BYTES: usize = 1_472;
const WIRE_BYTES: u32 = 1_500;

/// One arrival: when it was sent and when it came, from a common origin.
struct Arrival {
    sent: Duration,
    came: Duration,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let argument = |index: usize, default| arguments.get(index).map_or(default, String::as_str);
    let rate: Option<Rate> = match argument(0, "200M") {
        "none" => None,
        text => Some(text.parse()?),
    };
    let delay = parse_duration(argument(1, "40ms"))?;
    let offered: Rate = argument(2, "240M").parse()?;
    let seconds: u64 = argument(3, "5").parse()?;
    let queue = QueueConfig::Bdp { rtt: 2 * delay };
    let link = LinkConfig { rate, delay, queue, ..LinkConfig::default() };
    println!("link: {link}");

    println!("load of {offered}bit/s:");
    let arrivals = measure(&link, offered, Duration::from_secs(seconds))?;
    // The first second fills the queue.
    let late: Vec<&Arrival> =
        arrivals.iter().filter(|arrival| arrival.came > Duration::from_secs(1)).collect();
    if let [first, .., last] = late.as_slice() {
        let bits = (late.len() - 1) as f64 * f64::from(WIRE_BYTES) * 8.0;
        let passed = bits / (last.came - first.came).as_secs_f64();
        print!("  passed {:.3} Mb/s", passed / 1e6);
        if let Some(rate) = rate {
            print!(" ({:+.3} %)", (passed / rate.bits_per_second() as f64 - 1.0) * 100.0);
        }
        println!();
    }

    println!("one datagram a millisecond:");
    let slow: Rate = (WIRE_BYTES * 8 * 1_000).to_string().parse()?;
    let arrivals = measure(&link, slow, Duration::from_secs(seconds))?;
    let transmission =
        rate.map_or(0.0, |rate| f64::from(WIRE_BYTES) * 8e6 / rate.bits_per_second() as f64);
    let nominal = delay.as_secs_f64() * 1e6 + transmission;
    let mut errors: Vec<f64> = arrivals
        .iter()
        .map(|arrival| (arrival.came - arrival.sent).as_secs_f64() * 1e6 - nominal)
        .collect();
    errors.sort_by(f64::total_cmp);
    let share = |share: f64| errors[((errors.len() - 1) as f64 * share) as usize];
    println!(
        "  one-way delay minus {nominal:.0} us: mean {:+.0} us, median {:+.0}, 1 % {:+.0}, 99 % {:+.0}",
        errors.iter().sum::<f64>() / errors.len() as f64,
        share(0.5),
        share(0.01),
        share(0.99),
    );
    Ok(())
}

/// Sends at `offered` for `span` and returns what arrives.
fn measure(
    link: &LinkConfig,
    offered: Rate,
    span: Duration,
) -> Result<Vec<Arrival>, Box<dyn Error>> {
    let (sender, receiver) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    // Room for the moments when others have the processor.
    socket2::SockRef::from(&receiver).set_recv_buffer_size(16 << 20)?;
    receiver.set_read_timeout(Some(Duration::from_millis(500)))?;
    let mut config = RelayConfig::new("127.0.0.1:0".parse()?, receiver.local_addr()?);
    config.forward = link.clone();
    config.backward = link.clone();
    let relay = Relay::bind(config)?.spawn()?;
    sender.connect(relay.local_addr())?;

    let origin = Instant::now();
    let sent_all = AtomicBool::new(false);
    let arrivals = thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&receiver, origin, &sent_all));
        send(&sender, origin, offered, span);
        sent_all.store(true, Ordering::Relaxed);
        receiving.join()
    });
    let arrivals = arrivals.map_err(|_| "the receiver panicked")?;

    let busy = relay_cpu()?;
    let stats = relay.stop()?.forward;
    let timing = stats.timing;
    println!(
        "  received {} sent {} queue drops {} overflowed {} | relay CPU {:.1} % of a core | \
         departures: mean error {:?}, bias {:+.1} us, latest {:?}",
        stats.received,
        stats.sent,
        stats.link.dropped_queue,
        stats.overflowed,
        busy.as_secs_f64() / span.as_secs_f64() * 100.0,
        timing.mean_error(),
        timing.bias_us(),
        timing.max_late(),
    );
    Ok(arrivals)
}

/// Sends what is due, and sleeps.
fn send(socket: &UdpSocket, origin: Instant, offered: Rate, span: Duration) {
    let mut datagram = [0; PAYLOAD_BYTES];
    let mut sent_bytes = 0;
    while origin.elapsed() < span {
        while sent_bytes < offered.bytes_within(origin.elapsed()) {
            let now = origin.elapsed().as_nanos() as u64;
            datagram[..8].copy_from_slice(&now.to_be_bytes());
            if let Err(error) = socket.send(&datagram) {
                eprintln!("not sent: {error}");
            }
            sent_bytes += u64::from(WIRE_BYTES);
        }
        thread::sleep(Duration::from_micros(100));
    }
}

/// Receives until nothing has come for half a second after the last was sent.
fn receive(socket: &UdpSocket, origin: Instant, sent_all: &AtomicBool) -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    let mut datagram = [0; 2_048];
    loop {
        let Ok(size) = socket.recv(&mut datagram) else {
            if sent_all.load(Ordering::Relaxed) {
                return arrivals;
            }
            continue;
        };
        let came = origin.elapsed();
        if let Some(stamp) = datagram[..size].first_chunk() {
            arrivals.push(Arrival { sent: Duration::from_nanos(u64::from_be_bytes(*stamp)), came });
        }
    }
}

/// Processor time of the relay's thread so far.
fn relay_cpu() -> Result<Duration, Box<dyn Error>> {
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        if fs::read_to_string(task.join("comm"))?.trim() == "farhaul-relay" {
            let schedule = fs::read_to_string(task.join("schedstat"))?;
            let nanos = schedule.split(' ').next().ok_or("empty schedstat")?.parse()?;
            return Ok(Duration::from_nanos(nanos));
        }
    }
    Err("no relay thread".into())
}
