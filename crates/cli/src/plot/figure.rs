//! What a law did, in one picture: rates, windows, round-trip time and losses under its states.

use farhaul_lab::chart::{Axis, Chart, Figure, Panels, Row, Series, Spell, Strip};

use super::numbers::{Count, Numbers, Quantity};
use super::recording::{Recording, Stream};
use super::summary::Summary;
use crate::qlog::Role;

/// Points along a curve, at most: more than two pixels are between them.
const MOST_BINS: f64 = 360.0;
/// ACKs come every 10 ms: over shorter times their number says nothing of a rate.
const SHORTEST_BIN: f64 = 0.03;
/// Streams whose states have a row of their own.
const MOST_ROWS: usize = 16;
/// How much higher than the curves that matter others may reach and still be seen as a whole.
const ALONG: f64 = 2.0;

/// Colours of the palette, alike in all panels: what came of it, what the law wanted, what the path
/// or the peer allows, what was done beside.
const OUTCOME: usize = 0;
const LAW: usize = 1;
const LIMIT: usize = 9;
const BESIDE: usize = 2;

/// Draws `recording`, of which `summary` has the numbers.
pub fn of(recording: &Recording, summary: &Summary) -> Figure {
    let bins = Bins::of(recording);
    let charts = match recording.role {
        Role::Sender => vec![sent(&bins), windows(&bins), rtt(&bins), losses(&bins)],
        Role::Receiver => vec![received(&bins), rtt(&bins), missing(&bins)],
    };
    let law = if recording.cc.is_empty() { "unknown law" } else { &recording.cc };
    let title = if recording.title.is_empty() {
        law.to_owned()
    } else {
        format!("{law}: {}", recording.title)
    };
    // The law of a receiver that sends nothing stays what it was at first.
    let told = recording.role == Role::Sender || recording.states.len() > 1;
    let strip = told.then(|| strip(recording));
    Figure::from(Panels { title, subtitle: summary.line(), charts, strip })
}

/// The streams of a recording over common pieces of time.
struct Bins {
    /// Seconds from the beginning to the end, and of each bin.
    length: f64,
    width: f64,
    /// Of each stream.
    streams: Vec<Vec<Numbers>>,
}

impl Bins {
    fn of(recording: &Recording) -> Self {
        let (begin, end) = recording.span;
        let length = (end - begin).max(1e-6);
        let count = (length / SHORTEST_BIN).floor().clamp(1.0, MOST_BINS);
        let width = length / count;
        let fill = |stream: &Stream| {
            let mut bins = vec![Numbers::default(); count as usize];
            for point in &stream.points {
                spread(point.from - begin, point.to - begin, &point.numbers, width, &mut bins);
            }
            bins
        };
        Bins { length, width, streams: recording.streams.iter().map(fill).collect() }
    }

    fn x(&self) -> Axis {
        Axis::linear("time", "s").between(0.0, self.length)
    }

    /// A curve through what `value` makes of each bin of all streams; nothing where that is none.
    fn curve(&self, value: impl Fn(&mut dyn Iterator<Item = &Numbers>) -> Option<f64>) -> Points {
        let count = self.streams.first().map_or(0, Vec::len);
        let at = |bin: usize| {
            let mut all = self.streams.iter().map(|stream| &stream[bin]);
            let y = value(&mut all).unwrap_or(f64::NAN);
            ((bin as f64 + 0.5) * self.width, y)
        };
        (0..count).map(at).collect()
    }

    /// Of all streams together.
    fn sum(&self, quantity: Quantity) -> Points {
        self.curve(|all| {
            all.filter_map(|numbers| numbers.mean(quantity)).reduce(|sum, more| sum + more)
        })
    }

    /// Of all streams, each as much as it is known.
    fn mean(&self, quantity: Quantity) -> Points {
        self.curve(|all| {
            let mut together = Numbers::default();
            all.for_each(|numbers| together.add(numbers, 1.0));
            together.mean(quantity)
        })
    }

    fn least(&self, quantity: Quantity) -> Points {
        self.curve(|all| all.filter_map(|numbers| numbers.mean(quantity)).reduce(f64::min))
    }

    fn counted(&self, count: Count) -> Points {
        self.curve(|all| Some(all.map(|numbers| numbers.counted(count)).sum()))
    }
}

type Points = Vec<(f64, f64)>;

/// Gives each bin its share of what happened between two times.
fn spread(from: f64, to: f64, numbers: &Numbers, width: f64, bins: &mut [Numbers]) {
    if to <= from {
        return;
    }
    let place = |time: f64| (time / width).floor().clamp(0.0, bins.len() as f64 - 1.0) as usize;
    let (first, last) = (place(from), place(to));
    for (index, bin) in bins.iter_mut().enumerate().take(last + 1).skip(first) {
        // The first and the last one take what is outside too, that nothing be lost.
        let begin = if index == first { from } else { index as f64 * width };
        let end = if index == last { to } else { (index + 1) as f64 * width };
        bin.add(numbers, ((end - begin) / (to - from)).max(0.0));
    }
}

fn sent(bins: &Bins) -> Chart {
    let delivered = Series::line("delivered", bins.sum(Quantity::Delivered)).in_colour(OUTCOME);
    let sent = Series::line("sent", bins.sum(Quantity::Sent)).in_colour(BESIDE);
    let paced = Series::line("paced by the law", bins.sum(Quantity::Paced)).in_colour(LAW);
    // Streams of one path have it in common.
    let capacity = Series::line("capacity estimate", bins.mean(Quantity::Capacity));
    let beside = vec![capacity.in_colour(LIMIT).dashed(), paced];
    let unit = Axis::linear("rate", "b/s");
    chart(bins, unit, beside, vec![sent, delivered], crate::units::show_rate)
}

fn received(bins: &Bins) -> Chart {
    let received = Series::line("received", bins.sum(Quantity::Received)).in_colour(OUTCOME);
    let unit = Axis::linear("rate", "b/s");
    chart(bins, unit, Vec::new(), vec![received], crate::units::show_rate)
}

fn windows(bins: &Bins) -> Chart {
    let in_flight = Series::line("in flight", bins.sum(Quantity::InFlight)).in_colour(OUTCOME);
    let window = Series::line("congestion window", bins.sum(Quantity::Window)).in_colour(LAW);
    let flow = Series::line("the peer's window", bins.sum(Quantity::FlowWindow));
    let beside = vec![flow.in_colour(LIMIT).dashed(), window];
    let unit = Axis::linear("packets", "");
    chart(bins, unit, beside, vec![in_flight], |packets| format!("{packets:.0}"))
}

fn rtt(bins: &Bins) -> Chart {
    let rtt = Series::line("round-trip time", bins.mean(Quantity::Rtt)).in_colour(OUTCOME);
    let least = Series::line("its minimum", bins.least(Quantity::MinRtt));
    let least = least.in_colour(LIMIT).dashed();
    // It may lie far from zero, and chooses for itself what is seen of it.
    let y = Axis::linear("RTT", "s");
    Chart { x: bins.x(), y, series: vec![least, rtt], ..Chart::default() }
}

fn losses(bins: &Bins) -> Chart {
    let lost = Series::columns("lost", bins.counted(Count::Lost)).in_colour(LAW);
    let again = Series::line("sent again", bins.counted(Count::Retransmitted)).in_colour(OUTCOME);
    counts(bins, vec![lost, again])
}

fn missing(bins: &Bins) -> Chart {
    counts(bins, vec![Series::columns("missing", bins.counted(Count::Missing)).in_colour(LAW)])
}

fn counts(bins: &Bins, series: Vec<Series>) -> Chart {
    let label = format!("packets in {} ms", (bins.width * 1e3).round());
    let high = highest(&series);
    // A single packet is no mountain.
    let y = Axis::linear(label, "").between(0.0, (high * 1.1).max(5.0));
    Chart { x: bins.x(), y, series, ..Chart::default() }
}

/// A chart as high as `main` needs. What lies much higher is cut off, and says how high it is.
fn chart(
    bins: &Bins,
    axis: Axis,
    beside: Vec<Series>,
    main: Vec<Series>,
    show: impl Fn(f64) -> String,
) -> Chart {
    let known = |series: &Series| series.points.iter().any(|point| point.1.is_finite());
    let room = highest(&main) * 1.1;
    let mut top = room;
    let mut series: Vec<Series> = beside.into_iter().filter(known).collect();
    for line in &mut series {
        let high = highest(std::slice::from_ref(line));
        if high <= room * ALONG || room == 0.0 {
            top = top.max(high * 1.05);
        } else {
            line.name += &format!(" (up to {})", show(high));
        }
    }
    series.extend(main.into_iter().filter(known));
    let y = if top > 0.0 { axis.between(0.0, top) } else { axis };
    Chart { x: bins.x(), y, series, ..Chart::default() }
}

fn highest(series: &[Series]) -> f64 {
    let values = series.iter().flat_map(|line| &line.points).map(|point| point.1);
    values.filter(|value| value.is_finite()).fold(0.0, f64::max)
}

fn strip(recording: &Recording) -> Strip {
    let begin = recording.span.0;
    let several = recording.streams.len() > 1;
    let row = |stream: &Stream| {
        let mut spells: Vec<Spell> = Vec::new();
        for point in stream.points.iter().filter(|point| point.to > point.from) {
            let (from, to) = ((point.from - begin).max(0.0), point.to - begin);
            match spells.last_mut() {
                Some(last) if last.kind == point.state => last.to = to,
                _ => spells.push(Spell { from, to, kind: point.state }),
            }
        }
        let name = if several { format!("stream {}", stream.id) } else { String::new() };
        Row { name, spells }
    };
    let kinds = (0..recording.states.len()).map(|index| recording.state_name(index)).collect();
    let rows = recording.streams.iter().take(MOST_ROWS).map(row).collect();
    let left_out = recording.streams.len().saturating_sub(MOST_ROWS);
    let title = if left_out > 0 {
        format!("state (without {left_out} more streams)")
    } else {
        "state".to_owned()
    };
    Strip { title, kinds, rows }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_between_bins() {
        let mut numbers = Numbers::default();
        numbers.count(Count::Lost, 6.0);
        numbers.observe(Quantity::Sent, Some(100.0), 3.0);
        let lost = |bins: &[Numbers]| bins.iter().map(|bin| bin.counted(Count::Lost)).collect();
        for (from, to, expected) in [
            (0.5, 2.0, [2.0, 4.0, 0.0]),
            (0.0, 3.0, [2.0, 2.0, 2.0]),
            (1.2, 1.3, [0.0, 6.0, 0.0]),
            (-3.0, 0.5, [6.0, 0.0, 0.0]),
            (2.5, 9.0, [0.0, 0.0, 6.0]),
            (2.0, 2.0, [0.0, 0.0, 0.0]),
        ] {
            let mut bins = [Numbers::default(); 3];
            spread(from, to, &numbers, 1.0, &mut bins);
            let found: Vec<f64> = lost(&bins);
            assert_eq!(found, expected, "{from} to {to}");
            let rates = bins.iter().filter_map(|bin| bin.mean(Quantity::Sent));
            assert!(rates.into_iter().all(|rate| rate == 100.0));
        }
    }
}
