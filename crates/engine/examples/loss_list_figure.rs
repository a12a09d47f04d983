//! Draws gu05 Figures 2-7 and 2-10 from measurements of this implementation: losses under heavy
//! congestion, and what each access to the loss list then takes.
//!
//! `cargo run --release -p farhaul-engine --example loss_list_figure -- docs/figures` writes
//! `loss-list.svg` and `loss-list.csv` there.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "it measures time and writes files"
)]

#[path = "../benches/congestion/mod.rs"]
mod congestion;

use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use congestion::{Step, pattern};
use farhaul_engine::LossList;

const EVENTS: usize = 300;
/// Windows of 1 Gb/s and 100 ms, and of twelve times that.
const WINDOWS: [u32; 2] = [8_333, 100_000];
/// Copies of the list on which each access is made, so that the clock can tell how long one takes.
const COPIES: usize = 256;
/// The whole is measured so often; the least counts, since others had the processor otherwise.
const ROUNDS: usize = 7;

/// One loss event: how many packets were lost, and nanoseconds an access of each kind took.
#[derive(Clone, Copy)]
struct Event {
    lost: u32,
    insert_ns: f64,
    /// Of the repairs before the event; none if none were due.
    query_ns: Option<f64>,
    remove_ns: Option<f64>,
}

fn main() {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "docs/figures".into());
    let measured = WINDOWS.map(|window| measure(&pattern(window, EVENTS, 1), window));
    let mut csv = String::from("window,event,lost,insert_ns,query_ns,remove_ns\n");
    for (window, events) in WINDOWS.iter().zip(&measured) {
        for (n, e) in events.iter().enumerate() {
            let ns = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.1}"));
            let (query, remove) = (ns(e.query_ns), ns(e.remove_ns));
            writeln!(csv, "{window},{n},{},{:.1},{query},{remove}", e.lost, e.insert_ns).unwrap();
        }
        summarise(*window, events);
    }
    let dir = Path::new(&dir);
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("loss-list.csv"), csv).unwrap();
    fs::write(dir.join("loss-list.svg"), draw(&measured)).unwrap();
    println!("{}", dir.join("loss-list.svg").display());
}

fn measure(steps: &[Step], window: u32) -> Vec<Event> {
    let mut best: Vec<Event> = Vec::new();
    for _ in 0..ROUNDS {
        let round = measure_once(steps, window);
        if best.is_empty() {
            best = round;
            continue;
        }
        let least = |a: Option<f64>, b: Option<f64>| Some(a?.min(b?));
        for (best, event) in best.iter_mut().zip(round) {
            best.insert_ns = best.insert_ns.min(event.insert_ns);
            best.query_ns = least(best.query_ns, event.query_ns);
            best.remove_ns = least(best.remove_ns, event.remove_ns);
        }
    }
    best
}

fn measure_once(steps: &[Step], window: u32) -> Vec<Event> {
    let mut lists: Vec<LossList> = (0..COPIES).map(|_| LossList::new(window)).collect();
    let mut events = Vec::new();
    let (mut query_ns, mut remove_ns, mut repairs) = (0.0, 0.0, 0);
    for step in steps {
        match *step {
            Step::Repair { from, to } => {
                let mut first = None;
                query_ns += timed(&mut lists, |list| {
                    first = list.first(black_box(from), black_box(to));
                });
                let seq = first.unwrap();
                remove_ns += timed(&mut lists, |list| {
                    list.remove(black_box(seq));
                });
                repairs += 1;
            }
            Step::Insert(range) => {
                let insert_ns = timed(&mut lists, |list| {
                    list.insert(black_box(range));
                });
                let mean = |sum: f64| (repairs > 0).then(|| sum / f64::from(repairs));
                events.push(Event {
                    lost: range.len(),
                    insert_ns,
                    query_ns: mean(query_ns),
                    remove_ns: mean(remove_ns),
                });
                (query_ns, remove_ns, repairs) = (0.0, 0.0, 0);
            }
        }
    }
    events
}

/// Nanoseconds that `access` takes on one list.
fn timed(lists: &mut [LossList], mut access: impl FnMut(&mut LossList)) -> f64 {
    let begun = Instant::now();
    for list in lists.iter_mut() {
        access(list);
    }
    begun.elapsed().as_nanos() as f64 / lists.len() as f64
}

fn summarise(window: u32, events: &[Event]) {
    let longest = events.iter().map(|e| e.lost).max().unwrap();
    println!("window {window}: {} events, {longest} packets lost in the longest", events.len());
    let insert = events.iter().map(|e| e.insert_ns).collect();
    let query = events.iter().filter_map(|e| e.query_ns).collect();
    let remove = events.iter().filter_map(|e| e.remove_ns).collect();
    for (name, all) in [("insert", insert), ("query", query), ("remove", remove)] {
        let mut all: Vec<f64> = all;
        all.sort_by(f64::total_cmp);
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let at = |q: f64| all[(q * (all.len() - 1) as f64) as usize];
        println!(
            "  {name:6}: mean {mean:.0} ns, median {:.0}, 99% {:.0}, most {:.0}",
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
}

// ---- The drawing, in SVG's own units.

const WIDTH: f64 = 860.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 840.0;
const UPPER: (f64, f64) = (40.0, 230.0);
const LOWER: (f64, f64) = (290.0, 560.0);
/// Decades of the time axis, microseconds.
const DECADES: (i32, i32) = (-3, 1);
const COLOURS: [&str; 2] = ["#1f77b4", "#d62728"];

fn draw(measured: &[Vec<Event>; 2]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} 620\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"620\" fill=\"white\"/>\n"
    );
    text(&mut svg, LEFT, 24.0, "start", "Packets lost in each loss event (as gu05 Figure 2-7)");
    let title = "Time of an access to the loss list, microseconds (as gu05 Figure 2-10)";
    text(&mut svg, LEFT, 274.0, "start", title);
    draw_losses(&mut svg, &measured[0]);
    draw_time_axis(&mut svg);
    for (series, (events, colour)) in measured.iter().zip(COLOURS).enumerate() {
        draw_times(&mut svg, events, colour);
        let x = LEFT + 10.0 + 250.0 * series as f64;
        let name = format!("window of {} packets: insert ●, query ▲, remove ■", WINDOWS[series]);
        writeln!(svg, "<g fill=\"{colour}\">").unwrap();
        text(&mut svg, x + 130.0 * series as f64, 611.0, "start", &name);
        svg.push_str("</g>\n");
    }
    text(&mut svg, (LEFT + RIGHT) / 2.0, 590.0, "middle", "loss event");
    svg.push_str("</svg>\n");
    svg
}

fn x_of(event: usize) -> f64 {
    LEFT + (RIGHT - LEFT) * event as f64 / EVENTS as f64
}

fn draw_losses(svg: &mut String, events: &[Event]) {
    let y = |lost: u32| {
        UPPER.1 - (UPPER.1 - UPPER.0) * f64::from(lost) / f64::from(congestion::LONGEST)
    };
    for lost in (0..=3_500).step_by(500) {
        line(svg, (LEFT, y(lost)), (RIGHT, y(lost)), "#ddd");
        text(svg, LEFT - 8.0, y(lost) + 4.0, "end", &lost.to_string());
    }
    for (n, event) in events.iter().enumerate() {
        line(svg, (x_of(n), y(0)), (x_of(n), y(event.lost)), "#333");
    }
}

fn y_of(ns: f64) -> f64 {
    let decade = (ns / 1_000.0).log10().clamp(f64::from(DECADES.0), f64::from(DECADES.1));
    let share = (decade - f64::from(DECADES.0)) / f64::from(DECADES.1 - DECADES.0);
    LOWER.1 - (LOWER.1 - LOWER.0) * share
}

fn draw_time_axis(svg: &mut String) {
    for decade in DECADES.0..=DECADES.1 {
        let us = 10f64.powi(decade);
        let y = y_of(us * 1_000.0);
        line(svg, (LEFT, y), (RIGHT, y), if decade == 0 { "#888" } else { "#ddd" });
        text(svg, LEFT - 8.0, y + 4.0, "end", &us.to_string());
    }
    for event in (0..=EVENTS).step_by(50) {
        text(svg, x_of(event), LOWER.1 + 14.0, "middle", &event.to_string());
    }
}

fn draw_times(svg: &mut String, events: &[Event], colour: &str) {
    writeln!(svg, "<g fill=\"{colour}\" fill-opacity=\"0.6\">").unwrap();
    for (n, event) in events.iter().enumerate() {
        let x = x_of(n);
        let y = y_of(event.insert_ns);
        writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2\"/>").unwrap();
        if let Some(ns) = event.query_ns {
            let y = y_of(ns);
            let (l, r, t, b) = (x - 2.0, x + 2.0, y - 2.0, y + 2.0);
            writeln!(svg, "<path d=\"M{l:.1} {b:.1}L{r:.1} {b:.1}L{x:.1} {t:.1}Z\"/>").unwrap();
        }
        if let Some(ns) = event.remove_ns {
            let (l, t) = (x - 1.5, y_of(ns) - 1.5);
            writeln!(svg, "<rect x=\"{l:.1}\" y=\"{t:.1}\" width=\"3\" height=\"3\"/>").unwrap();
        }
    }
    svg.push_str("</g>\n");
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) {
    writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"/>",
        from.0, from.1, to.0, to.1
    )
    .unwrap();
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, what: &str) {
    writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{what}</text>")
        .unwrap();
}
