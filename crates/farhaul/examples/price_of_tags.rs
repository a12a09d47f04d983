//! What tags cost: a gigabyte over loopback without, with tags on control packets, and with tags on data packets
//! as well, in turn; `price_of_tags ROUNDS`. Prints a line a round, and the medians.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::thread;
use std::time::Instant;

use farhaul::{Connection, Listener, Options, TagKeys};

const SIZE: usize = 1 << 30;
const BLOCK: usize = 1 << 20;
const MODES: [(&str, bool, bool); 3] =
    [("no tags", false, false), ("control", true, false), ("control and data", true, true)];

fn main() -> Result<()> {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let rounds: usize = rounds.ok_or_else(|| Error::other("usage: price_of_tags ROUNDS"))?;
    let mut seconds = MODES.map(|_| Vec::new());
    for _ in 0..rounds {
        for ((name, control, data), all) in MODES.iter().zip(&mut seconds) {
            let (wall, cpu, reports) = copy(*control, *data)?;
            println!(
                "{name}: {:.2} Gb/s, {cpu:.3} s/GB, {reports} ACKs and NAKs",
                SIZE as f64 * 8e-9 / wall
            );
            all.push((wall, cpu));
        }
    }
    for ((name, ..), all) in MODES.iter().zip(&mut seconds) {
        let median = |of: fn(&(f64, f64)) -> f64| {
            let mut values: Vec<f64> = all.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
        };
        let (wall, cpu) = (median(|all| all.0), median(|all| all.1));
        println!("median, {name}: {:.2} Gb/s, {cpu:.3} s/GB", SIZE as f64 * 8e-9 / wall);
    }
    Ok(())
}

/// Seconds that a gigabyte takes, those of processors, both sides together, per 10^9 bytes, and ACKs and NAKs sent.
fn copy(control: bool, data: bool) -> Result<(f64, f64, u64)> {
    let listener = Listener::bind("127.0.0.1:0", &Options::new())?;
    let near = Connection::connect(listener.local_addr(), &Options::new())?;
    let far = listener.accept()?;
    if control {
        let (there, back) = ([1; 16], [2; 16]);
        near.set_tag_keys(TagKeys { send: there, receive: back });
        far.set_tag_keys(TagKeys { send: back, receive: there });
        near.authenticate();
        far.authenticate();
    }
    if data {
        far.authenticate_data();
        // It is asked for with a packet.
        thread::sleep(std::time::Duration::from_millis(100));
    }
    let (begun, before) = (Instant::now(), cpu_seconds());
    let reading = thread::spawn(move || -> Result<Connection> {
        let (mut block, mut left) = (vec![0; BLOCK], SIZE);
        while left > 0 {
            match (&far).read(&mut block[..BLOCK.min(left)])? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => left -= count,
            }
        }
        Ok(far)
    });
    let block = vec![7; BLOCK];
    for _ in 0..SIZE / BLOCK {
        (&near).write_all(&block)?;
    }
    near.wait_acknowledged()?;
    let (wall, cpu) = (begun.elapsed().as_secs_f64(), cpu_seconds() - before);
    let far = reading.join().map_err(|_| Error::other("the reader panicked"))??;
    let counters = far.stats(false)?.total.counters;
    Ok((wall, cpu * 1e9 / SIZE as f64, counters.acks_sent + counters.naks_sent))
}

/// Time on processors, of all threads that there have been.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // utime and stime, in hundredths of a second on Linux, after the name in brackets.
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields).unwrap_or_default();
    let ticks = fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
    ticks.sum::<u64>() as f64 / 100.0
}
