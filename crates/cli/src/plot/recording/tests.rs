use std::fmt::Write as _;

use super::*;
use crate::qlog::{Vantage, Writer};

/// A header.
fn head() -> Vec<u8> {
    let mut out = Vec::new();
    Writer::new(&mut out).write(&Header::new("a test".into(), Vantage::Client, 0.0)).unwrap();
    out
}

fn sample(millis: f64, interval_ms: f64, state: &'static str) -> Vec<u8> {
    let data = Sample {
        law: "udt".into(),
        state: state.into(),
        interval_ms,
        window: 10,
        rtt_ms: Some(millis),
        sent_bps: 8e6,
        lost: 3,
        ..Sample::default()
    };
    let mut out = Vec::new();
    let record = Record { time: millis, name: NAMES.sample.into(), group_id: "0".into(), data };
    Writer::new(&mut out).write(&record).unwrap();
    out
}

fn read(parts: &[&[u8]]) -> Result<Recording, String> {
    Recording::read(parts.concat().as_slice()).map_err(|error| error.to_string())
}

fn assert_refused(parts: &[&[u8]], text: &str) {
    let error = read(parts).expect_err("it is no trace");
    assert!(error.contains(text), "{error}");
}

/// A record as others might write it.
fn text(json: &str) -> Vec<u8> {
    format!("\x1e{json}\n").into_bytes()
}

#[test]
fn samples_become_numbers() {
    let foreign = text(r#"{"time":1,"name":"recovery:metrics_updated","data":{"cwnd":3}}"#);
    let parts =
        [head(), foreign, sample(10.0, 0.0, "a"), sample(20.0, 10.0, "a"), sample(50.0, 30.0, "b")];
    let recording = read(&parts.each_ref().map(Vec::as_slice)).unwrap();
    let [stream] = recording.streams.as_slice() else { panic!("{recording:?}") };
    assert_eq!((recording.title.as_str(), recording.side.as_str()), ("a test", "client"));
    assert_eq!(recording.span, (0.01, 0.05));
    assert_eq!(stream.points.len(), 3);
    assert_eq!(stream.total.counted(Count::Lost), 9.0);
    assert!((stream.total.sum(Quantity::Sent) - 320e3).abs() < 1e-6);
    let close = |values: &[f64], expected: &[f64]| {
        values.iter().zip(expected).all(|(value, expected)| (value - expected).abs() < 1e-9)
    };
    assert!(close(&stream.time_in, &[0.01, 0.03]), "{stream:?}");
    let names: Vec<String> = (0..2).map(|state| recording.state_name(state)).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn what_is_no_trace_is_refused_with_its_place() {
    let (head, one) = (head(), sample(10.0, 0.0, "a"));
    assert_refused(&[b""], "record 1 (line 1): the file is empty");
    assert_refused(&[b"GIF89a"], "record 1 (line 1): no record separator");
    assert_refused(&[&text("{\"a\":1}")], "record 1 (line 1): it is no header of qlog");
    assert_refused(&[&text("7")], "it is no header of qlog");
    assert_refused(&[&one], "record 1 (line 1): it is no header of qlog");
    assert_refused(&[&head], "record 2 (line 2): there is no 'farhaul:metrics_sampled'");
    assert_refused(&[&head, &text("{nonsense}")], "record 2 (line 2): key must be a string");
    assert_refused(&[&head, &one, &one[..one.len() / 2]], "record 3 (line 3): it is cut off");
    assert_refused(&[&head, &one, &one[1..]], "record 2 (line 2): trailing characters");
    let late = sample(20.0, 10.0, "a");
    assert_refused(&[&head, &late, &one], "record 3 (line 3): it is of 10 ms, and the one before");
    let quic = r#"{"qlog_version":"0.4","qlog_format":"JSON-SEQ","trace":{"vantage_point":{"type":
        "server"},"common_fields":{"time_format":"relative"}}}"#;
    assert_refused(&[&text(quic)], "it is qlog 0.4, and this reads 0.3");
    let quic = quic.replace("0.4", "0.3").replace("relative", "delta");
    assert_refused(&[&text(&quic)], "its times are delta");
}

#[test]
fn senseless_numbers_are_refused() {
    let head = head();
    let good = String::from_utf8(sample(10.0, 10.0, "a")).unwrap();
    assert!(read(&[&head, good.as_bytes()]).is_ok());
    for (from, to, text) in [
        ("\"time\":10.0", "\"time\":-1", "a time of -1 ms"),
        ("\"time\":10.0", "\"time\":1e99", "a time of"),
        ("\"time\":10.0", "\"time\":1e999", "number out of range"),
        ("\"time\":10.0", "\"time\":null", "invalid type"),
        ("\"rtt_ms\":10.0", "\"rtt_ms\":-10.0", "a number is negative"),
        ("\"sent_bps\":8000000.0", "\"sent_bps\":1e300", "a number is negative, or greater"),
        ("\"sent_bps\":8000000.0,", "", "missing field `sent_bps`"),
        ("\"window\":10", "\"window\":-1", "invalid value"),
        ("\"lost\":3", "\"lost\":99999999999999999999", "invalid type"),
        ("\"state\":\"a\"", "\"state\":[[[[", "expected value, at its column"),
    ] {
        let bad = good.replace(from, to);
        assert_ne!(bad, good, "{from}");
        assert_refused(&[&head, bad.as_bytes()], text);
    }
    let greatest = good.replace("\"lost\":3", &format!("\"lost\":{}", u64::MAX));
    let recording = read(&[&head, greatest.as_bytes()]).unwrap();
    assert!(recording.streams[0].total.counted(Count::Lost) > 1e19);
}

/// Whatever is cut off or has a wrong byte: an error, or a trace with other numbers, but no panic.
#[test]
fn damage_anywhere_does_no_harm() {
    let whole = [head(), sample(10.0, 0.0, "a"), sample(20.0, 10.0, "b")].concat();
    for end in 0..whole.len() {
        let result = Recording::read(&whole[..end]);
        // What ends with a whole sample is whole.
        let complete = whole[..end].ends_with(b"\n") && end > head().len();
        assert_eq!(result.is_ok(), complete, "{end}: {result:?}");
    }
    for place in 0..whole.len() {
        for byte in [0, b'9', b'"', b'-', b'{', 0x1e, 0xff] {
            let mut bytes = whole.clone();
            bytes[place] = byte;
            if let Ok(recording) = Recording::read(bytes.as_slice()) {
                let summary = crate::plot::Summary::of(&recording, "a".as_ref(), "b".as_ref());
                drop(crate::plot::figure::of(&recording, &summary));
            }
        }
    }
}

#[test]
fn memory_does_not_grow_with_the_trace() {
    let mut bytes = head();
    let samples = 10 * MOST_POINTS + 7;
    for nth in 1..=samples {
        bytes.extend(sample(10.0 * nth as f64, 10.0, if nth % 5 == 0 { "b" } else { "a" }));
    }
    let recording = read(&[&bytes]).unwrap();
    let stream = &recording.streams[0];
    assert!((MOST_POINTS / 2..=MOST_POINTS).contains(&stream.points.len()));
    let counted = |points: &[Point]| -> f64 {
        points.iter().map(|point| point.numbers.counted(Count::Lost)).sum()
    };
    assert_eq!(counted(&stream.points), 3.0 * samples as f64);
    assert_eq!(stream.total.counted(Count::Lost), 3.0 * samples as f64);
    assert!(stream.points.windows(2).all(|pair| (pair[0].to - pair[1].from).abs() < 1e-9));
    assert!((stream.time_in[0] / stream.time_in[1] - 4.0).abs() < 0.01, "{:?}", stream.time_in);
}

#[test]
fn connections_states_and_names_are_limited() {
    let head = head();
    let one = String::from_utf8(sample(10.0, 10.0, "a")).unwrap();
    let mut many = String::new();
    (0..=MOST_STREAMS).for_each(|id| {
        write!(many, "{}", one.replace("\"group_id\":\"0\"", &format!("\"group_id\":\"{id}\"")))
            .unwrap();
    });
    assert_refused(&[&head, many.as_bytes()], "more than 256 connections");
    let mut many = String::new();
    (0..=MOST_STATES).for_each(|state| {
        write!(many, "{}", one.replace("\"state\":\"a\"", &format!("\"state\":\"{state}\"")))
            .unwrap();
    });
    assert_refused(&[&head, many.as_bytes()], "more than 64 states");
    let long = one.replace("\"state\":\"a\"", &format!("\"state\":\"{}\"", "é".repeat(9999)));
    let recording = read(&[&head, long.as_bytes()]).unwrap();
    assert_eq!(recording.state_name(0).chars().count(), LONGEST_NAME);
}

#[test]
fn one_of_several_connections_can_be_chosen() {
    let one = String::from_utf8(sample(10.0, 10.0, "a")).unwrap();
    let other = one.replace("\"group_id\":\"0\"", "\"group_id\":\"1\"");
    let both = || read(&[&head(), one.as_bytes(), other.as_bytes()]).unwrap();
    assert_eq!(both().streams.len(), 2);
    assert_eq!(both().only("1").unwrap().streams[0].id, "1");
    assert!(both().only("2").is_none());
}

#[test]
fn states_are_called_by_their_laws_where_there_are_several() {
    let one = String::from_utf8(sample(10.0, 10.0, "a")).unwrap();
    let nameless = one.replace("\"state\":\"a\"", "\"state\":\"\"");
    let recording = read(&[&head(), nameless.as_bytes()]).unwrap();
    assert_eq!(recording.state_name(0), "udt");
    let reno = one.replace("\"law\":\"udt\"", "\"law\":\"reno\"");
    let recording = read(&[&head(), nameless.as_bytes(), reno.as_bytes()]).unwrap();
    assert_eq!(
        (recording.state_name(0), recording.state_name(1)),
        ("udt".into(), "reno: a".into())
    );
}
