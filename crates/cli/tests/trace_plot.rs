//! `farhaul perf --trace` and `farhaul plot`, as they are used.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use common::path::Path as Emulated;
use common::process::Process;
use common::ran::{Ran, farhaul, json};
use serde_json::Value;
use tempfile::TempDir;

fn folder() -> TempDir {
    TempDir::new().expect("a folder for the test")
}

/// The header and the events of a trace, as any reader of JSON text sequences finds them.
fn records(path: &Path) -> (Value, Vec<Value>) {
    let text = fs::read_to_string(path).expect("a trace");
    assert!(text.starts_with('\u{1e}') && text.ends_with('\n'));
    let read = |record: &str| {
        assert_eq!(record.find('\n'), Some(record.len() - 1), "one line each: {record}");
        serde_json::from_str(record).unwrap_or_else(|error| panic!("{error}: {record}"))
    };
    let mut all = text[1..].split('\u{1e}').map(read);
    (all.next().expect("a header"), all.collect())
}

fn named<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["name"] == format!("farhaul:{name}")).collect()
}

fn sum(events: &[&Value], key: &str) -> u64 {
    events.iter().map(|event| event["data"][key].as_u64().expect("a count")).sum()
}

fn groups(events: &[Value]) -> Vec<&str> {
    let ids = events.iter().map(|event| event["group_id"].as_str().expect("a text"));
    Vec::from_iter(ids.collect::<BTreeSet<&str>>())
}

/// What must hold of every trace.
fn assert_well_formed(header: &Value, events: &[Value], side: &str, role: &str) {
    assert_eq!(header["qlog_version"], "0.3");
    assert_eq!(header["qlog_format"], "JSON-SEQ");
    assert!(header["title"].as_str().is_some_and(|title| title.contains("farhaul perf")));
    let trace = &header["trace"];
    assert_eq!(trace["vantage_point"]["type"], side);
    assert_eq!(trace["common_fields"]["time_format"], "relative");
    assert!(trace["common_fields"]["reference_time"].as_f64().is_some_and(|time| time > 1e12));
    let times: Vec<f64> =
        events.iter().map(|event| event["time"].as_f64().expect("a number")).collect();
    assert!(times.is_sorted(), "{times:?}");
    for started in named(events, "connection_started") {
        assert_eq!(started["data"]["role"], role);
        assert!(started["data"]["peer"].as_str().is_some_and(|peer| peer.contains("127.0.0.1")));
    }
    assert_eq!(named(events, "connection_started").len(), groups(events).len());
    for sample in named(events, "metrics_sampled") {
        for key in ["window", "flow_window", "in_flight", "sent_bps", "delivered_bps", "lost"] {
            assert!(sample["data"][key].is_number(), "{key}: {sample}");
        }
        assert!(sample["data"]["rtt_ms"].as_f64().is_none_or(|rtt| rtt > 0.0), "{sample}");
    }
    // Events tell what samples tell.
    let mut states = BTreeMap::new();
    for event in events {
        let (name, data) = (event["name"].as_str().expect("a name"), &event["data"]);
        let state = states.entry(event["group_id"].to_string()).or_insert(Value::Null);
        match name {
            "farhaul:state_changed" => {
                assert_eq!(*state, data["old"], "{event}");
                *state = data["new"].clone();
            }
            "farhaul:metrics_sampled" if state.is_null() => *state = data["state"].clone(),
            "farhaul:metrics_sampled" => assert_eq!(*state, data["state"], "{event}"),
            _ => {}
        }
    }
    let samples = named(events, "metrics_sampled");
    let lost = sum(&samples, "lost") + sum(&samples, "missing");
    assert_eq!(sum(&named(events, "packets_lost"), "packets"), lost);
}

fn assert_svg(path: &Path, texts: &[&str]) {
    let picture = fs::read_to_string(path).expect("a picture");
    assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
    texts.iter().for_each(|text| assert!(picture.contains(text), "{text} in {}", path.display()));
}

#[test]
fn a_trace_tells_what_the_law_did_and_is_drawn() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let listener = Process::farhaul(&["perf", "--listen", "127.0.0.1:0", "--once"]);
    let path = Emulated::new("100M", 2).loss("1%").to(listener.listening_at());
    let (addr, trace) = (path.local_addr().to_string(), at("law.sqlog"));
    let args = ["perf", &addr, "-n", "5MB", "--cc", "reno", "--json", "--trace"];
    let trace_name = trace.to_str().expect("a name in ASCII");
    let report = Process::farhaul(&[&args[..], &[trace_name]].concat()).finish_well().json();
    listener.finish_well();

    let (header, events) = records(&trace);
    assert_well_formed(&header, &events, "client", "sender");
    assert_eq!(groups(&events), ["0"]);
    let samples = named(&events, "metrics_sampled");
    assert!(samples.len() >= 2);
    let known = ["slow start", "avoidance", "recovery"];
    for sample in &samples {
        assert_eq!(sample["data"]["law"], "reno");
        assert!(known.iter().any(|state| sample["data"]["state"] == *state), "{sample}");
        assert!(sample["data"].get("period_us").is_none(), "it is not paced: {sample}");
    }
    // One in a hundred of 3,400 packets.
    let lost = sum(&samples, "lost");
    assert!(lost > 0 && report["packets"]["lost"].as_u64().is_some_and(|lost| lost > 0));
    assert!(!named(&events, "state_changed").is_empty(), "losses end slow start");

    // Beside the trace, by its name.
    let numbers = json(folder.path(), "plot", &["law.sqlog", "--json"]);
    assert_svg(&at("law.svg"), &["reno: farhaul perf with", "delivered", "in flight", "RTT (ms)"]);
    assert_svg(&at("law.svg"), &["slow start", "sent again", "time (s)"]);
    assert_eq!((&numbers["trace"], &numbers["plot"]), (&"law.sqlog".into(), &"law.svg".into()));
    assert_eq!((&numbers["cc"], &numbers["role"]), (&"reno".into(), &"sender".into()));
    assert_eq!(numbers["packets"]["lost"], lost);
    let number = |value: &Value| value.as_f64().expect("a number");
    let rtt = &numbers["rtt_ms"];
    assert!(number(&rtt["min"]) <= number(&rtt["mean"]));
    assert!(number(&rtt["mean"]) <= number(&rtt["max"]));
    assert!(number(&numbers["bits_per_second"]) > 0.0);
    let states = numbers["states"].as_object().expect("states");
    assert!(states.keys().all(|state| known.contains(&state.as_str())), "{states:?}");
    let told: f64 = states.values().map(number).sum();
    assert!(told > 0.0 && number(&numbers["seconds"]) > 0.0, "{numbers:#}");

    let drawn = farhaul(folder.path(), "plot", &["law.sqlog", "-o", "other.png"]);
    assert_eq!(drawn.code, Some(0), "{}", drawn.errors);
    assert!(drawn.out.starts_with("reno: sender, ") && drawn.out.contains("plot: other.png"));
    assert!(fs::read(at("other.png")).expect("a picture").starts_with(b"\x89PNG"));
}

#[test]
fn each_connection_has_its_group_on_both_sides() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name).to_str().expect("ASCII").to_owned();
    let (server, client) = (at("server.sqlog"), at("client.sqlog"));
    let listen = ["perf", "--listen", "127.0.0.1:0", "--once", "--cc", "udt:noisy"];
    let listener = Process::farhaul(&[&listen[..], &["--trace", &server]].concat());
    let addr = listener.listening_at().to_string();
    let args = ["perf", &addr, "-n", "3MB", "-P", "3", "-R", "--trace", &client];
    Process::farhaul(&args).finish_well();
    listener.finish_well();
    for (path, side, role) in [(&server, "server", "sender"), (&client, "client", "receiver")] {
        let (header, events) = records(Path::new(path));
        assert_well_formed(&header, &events, side, role);
        assert_eq!(groups(&events), ["0", "1", "2"], "{side}");
    }
    let of = |name: &str, more: &[&str]| {
        json(folder.path(), "plot", &[&[name, "--json"], more].concat())
    };
    let numbers = of("server.sqlog", &[]);
    assert_eq!(numbers["cc"], "udt:noisy=true");
    let streams = numbers["streams"].as_array().expect("a list");
    let sent = |value: &Value| value["packets"]["sent"].as_u64().expect("a count");
    assert_eq!(streams.len(), 3);
    assert_eq!(streams.iter().map(sent).sum::<u64>(), sent(&numbers));
    assert_svg(&folder.path().join("server.svg"), &["3 streams together", "stream 2"]);
    let one = of("server.sqlog", &["--stream", "1", "-o", "one.svg"]);
    assert_eq!(one["streams"].as_array().map(Vec::len), Some(1));
    assert_eq!(sent(&one), sent(&streams[1]));
    assert_svg(&folder.path().join("one.svg"), &["stream 1"]);
    let none = farhaul(folder.path(), "plot", &["server.sqlog", "--stream", "3"]);
    assert_refused(&none, "server.sqlog: there is no stream 3 among its 3");
    let received = of("client.sqlog", &[]);
    assert!(received["packets"]["received"].as_u64().is_some_and(|packets| packets > 0));
    assert!(received.get("sent_bits_per_second").is_none());
    assert_svg(&folder.path().join("client.svg"), &["3 streams together", "received"]);
}

/// The law that looks at what arrives tells its state at the receiver.
#[test]
fn raw_tests_and_laws_of_the_receiver_are_traced() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name).to_str().expect("ASCII").to_owned();
    let (sink, source) = (at("sink.sqlog"), at("source.sqlog"));
    let listen = ["perf", "--listen", "127.0.0.1:0", "--once", "--sink", "--cc", "gtp"];
    let listener = Process::farhaul(&[&listen[..], &["--trace", &sink]].concat());
    let addr = listener.listening_at().to_string();
    let args = ["perf", &addr, "--source", "-n", "2MB", "--cc", "gtp", "--trace", &source];
    Process::farhaul(&args).finish_well();
    listener.finish_well();
    let states = |path: &str| {
        let (_, events) = records(Path::new(path));
        let samples = named(&events, "metrics_sampled");
        let told = samples.iter().map(|sample| sample["data"]["state"].to_string());
        told.collect::<BTreeSet<String>>()
    };
    assert!(states(&sink).contains("\"granting\""), "{:?}", states(&sink));
    assert!(states(&source).contains("\"granted\""), "{:?}", states(&source));
}

fn assert_refused(ran: &Ran, text: &str) {
    assert_eq!(ran.code, Some(2), "{}", ran.errors);
    assert!(ran.errors.contains(text), "{text}: {}", ran.errors);
    assert!(ran.out.is_empty(), "{}", ran.out);
}

#[test]
fn what_cannot_be_traced_is_told_before_the_test() {
    let folder = folder();
    let perf = |args: &[&str]| farhaul(folder.path(), "perf", args);
    // Nobody listens there: it would take long to find out.
    let nobody = "127.0.0.1:9";
    assert_refused(&perf(&[nobody, "--trace", "no/such/x"]), "cannot write no/such/x: ");
    assert_refused(&perf(&[nobody, "--trace", "."]), "cannot write .: ");
    assert_refused(&perf(&["--listen", ":0", "--once", "--trace", "."]), "cannot write .: ");
    assert_refused(&perf(&["--listen", ":0", "--trace", "x"]), "needs --once");
    let tcp = perf(&[nobody, "--protocol", "tcp", "--trace", "x"]);
    assert_refused(&tcp, "the kernel's TCP does not tell");
    assert!(!folder.path().join("x").exists());
}

#[test]
fn what_is_no_trace_is_refused_and_not_drawn() {
    let folder = folder();
    let plot = |args: &[&str]| farhaul(folder.path(), "plot", args);
    let write = |name: &str, bytes: &[u8]| {
        fs::write(folder.path().join(name), bytes).expect("a file for the test");
    };
    let head = "\u{1e}{\"qlog_version\":\"0.3\",\"qlog_format\":\"JSON-SEQ\",\"trace\":{\
                \"vantage_point\":{\"type\":\"client\"},\"common_fields\":{\
                \"time_format\":\"relative\"}}}\n";
    write("empty", b"");
    write("picture", b"\x89PNG\r\n");
    write("lines", b"{\"time\":1}\n{\"time\":2}\n");
    write("head", head.as_bytes());
    write("cut", format!("{head}\u{1e}{{\"time\":").as_bytes());
    write(
        "bad",
        format!("{head}\u{1e}{{\"time\":0,\"name\":\"x\",\"data\":1}}\n\u{1e}?\n").as_bytes(),
    );
    for (name, text) in [
        ("none", "none: No such file"),
        (".", "Is a directory"),
        ("empty", "empty: record 1 (line 1): the file is empty"),
        ("picture", "picture: record 1 (line 1): no record separator"),
        ("lines", "lines: record 1 (line 1): no record separator"),
        ("head", "head: record 2 (line 2): there is no 'farhaul:metrics_sampled'"),
        ("cut", "cut: record 2 (line 2): it is cut off"),
        ("bad", "bad: record 3 (line 3): expected value, at its column 1"),
    ] {
        assert_refused(&plot(&[name, "-o", "drawn.svg"]), text);
        assert!(!folder.path().join("drawn.svg").exists(), "{name}");
    }
    assert_refused(&plot(&["head", "-o", "drawn.gif"]), "a plot is a .svg or a .png");
    write("trace.svg", head.as_bytes());
    assert_refused(&plot(&["trace.svg"]), "trace.svg is the trace");
    assert_refused(&plot(&["trace.svg", "-o", "./trace.svg"]), "is the trace");
    assert_refused(&plot(&[]), "FILE");
}
