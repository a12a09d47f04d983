//! What observers are told, as text.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use farhaul_base::Time;
use farhaul_sim::{
    Event, EventKind, Filter, LinkId, Observer, Plan, Report, Scenario, Trace, TraceHash,
};

fn scenario(text: &str) -> Scenario {
    let plan = Plan::parse(text, &[], None).expect("a scenario");
    plan.point(0).expect("its only point").scenario
}

/// Runs it to its end with an observer.
fn run<T: Observer + 'static>(scenario: &Scenario, observer: T) -> (Report, Arc<Mutex<T>>) {
    let mut run = scenario.start();
    let observer = Arc::new(Mutex::new(observer));
    run.simulation_mut().observe(Box::new(Arc::clone(&observer)));
    while run.step() {}
    (run.finish(), observer)
}

/// What another may read after it has been written.
#[derive(Clone, Debug, Default)]
struct Pages(Arc<Mutex<Vec<u8>>>);

impl Write for Pages {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn trace(scenario: &Scenario, filter: &str) -> String {
    let filter = Filter::parse(filter, scenario).expect("a filter");
    let pages = Pages::default();
    run(scenario, Trace::new(scenario, filter, pages.clone()));
    let bytes = pages.0.lock().expect("no panic").clone();
    String::from_utf8(bytes).expect("text")
}

/// All that links do to packets, and all kinds of flows.
const EVERYTHING: &str = include_str!("scenarios/everything.toml");

#[test]
fn a_tiny_transfer_line_by_line() {
    let scenario = scenario(
        r#"
        duration = "235ms"
        [[link]]
        name = "the link"
        from = "left"
        to = "right"
        rate = "12M"
        delay = "5ms"
        queue = "2p"
        loss = "list:3"
        reverse = { loss = "none" }
        [[flow]]
        name = "tcp"
        from = "left"
        to = "right"
        protocol = "tcp-newreno"
        cc = "reno:window=4"
        bytes = "6000"
        options = { delayed_ack = "0s" }
        "#,
    );
    let expected = "\
0.000000000 send left tcp > tcp 52 syn
0.005034667 arrive the_link tcp > tcp 52 syn
0.005034667 receive right tcp > tcp 52 syn
0.005034667 send right tcp < tcp 52 syn ack window 735439
0.010069334 arrive the_link-back tcp < tcp 52 syn ack window 735439
0.010069334 receive left tcp < tcp 52 syn ack window 735439
0.010069334 send left tcp > tcp 1500 data 0 len 1460
0.010069334 send left tcp > tcp 1500 data 1 len 1460
0.010069334 send left tcp > tcp 1500 data 2 len 1460
0.010069334 drop-full the_link tcp > tcp 1500 data 2 len 1460
0.010069334 send left tcp > tcp 1500 data 3 len 1460
0.010069334 drop-full the_link tcp > tcp 1500 data 3 len 1460
0.012069334 drop-loss the_link tcp > tcp 1500 data 1 len 1460
0.016069334 arrive the_link tcp > tcp 1500 data 0 len 1460
0.016069334 receive right tcp > tcp 1500 data 0 len 1460
0.016069334 send right tcp < tcp 40 ack next 1 window 735439
0.021096001 arrive the_link-back tcp < tcp 40 ack next 1 window 735439
0.021096001 receive left tcp < tcp 40 ack next 1 window 735439
0.021096001 send left tcp > tcp 200 data 4 len 160 fin
0.026229335 arrive the_link tcp > tcp 200 data 4 len 160 fin
0.026229335 receive right tcp > tcp 200 data 4 len 160 fin
0.026229335 send right tcp < tcp 52 ack next 1 window 735439 sack 4
0.031264002 arrive the_link-back tcp < tcp 52 ack next 1 window 735439 sack 4
0.031264002 receive left tcp < tcp 52 ack next 1 window 735439 sack 4
0.231285001 send left tcp > tcp 1500 data 1 len 1460 again
";
    let lines = trace(&scenario, "");
    assert_eq!(lines, expected, "{lines}");
    let lines = trace(&scenario, "direction=>,kind=data,event=drop,node=left,to=11ms");
    let expected: Vec<&str> = expected.lines().filter(|line| line.contains("drop-full")).collect();
    assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn udt_packets_say_what_they_are() {
    let lines = trace(&scenario(EVERYTHING), "flow=bulk,event=send|drop");
    for part in [
        " > udt 92 handshake hello first ",
        " < udt 92 handshake conclusion first ",
        " > udt 1500 data ",
        " len 1456 again\n",
        " udt 68 ack 1 next ",
        " udt 48 ack2 1\n",
        " udt 48 nak ",
        " drop-loss bottleneck bulk > udt 1500 data ",
    ] {
        assert!(lines.contains(part), "{part}");
    }
    // What is filtered away is as good as not there.
    assert!(!lines.contains("arrive") && !lines.contains(" cbr "));
}

/// Counts events by link, and checks that time does not go back.
#[derive(Debug, Default)]
struct Count {
    now: Time,
    events: BTreeMap<(Option<LinkId>, EventKind), u64>,
}

impl Observer for Count {
    fn event(&mut self, event: &Event<'_>) {
        assert!(event.at >= self.now, "{event:?} after {:?}", self.now);
        self.now = event.at;
        *self.events.entry((event.link, event.kind)).or_default() += 1;
    }
}

/// Of every packet that goes missing an observer is told, and the run is the one without it.
#[test]
fn observers_see_all_and_change_nothing() {
    let scenario = scenario(EVERYTHING);
    let (report, count) = run(&scenario, Count::default());
    assert_eq!(report, scenario.run());
    let count = count.lock().expect("no panic");
    let of = |wanted: fn(EventKind) -> bool, link: Option<usize>| -> u64 {
        let is_it = |at: &Option<LinkId>| link.is_none_or(|n| *at == Some(LinkId(n as u32)));
        let found = count.events.iter().filter(|((at, kind), _)| is_it(at) && wanted(*kind));
        found.map(|(_, count)| count).sum()
    };
    assert_eq!(of(|kind| kind == EventKind::Sent, None), report.packets);
    for (number, link) in report.links.iter().enumerate() {
        let drops = of(|kind| matches!(kind, EventKind::Dropped(_)), Some(number));
        assert_eq!(drops, link.drops, "{}", link.name);
    }
    let causes = count.events.keys().filter(|(_, kind)| matches!(kind, EventKind::Dropped(_)));
    assert!(causes.clone().any(|(link, _)| *link == Some(LinkId(0))), "{:?}", count.events);
    assert_eq!(causes.filter(|(link, _)| *link == Some(LinkId(2))).count(), 3);
}

#[test]
fn hashes_tell_runs_apart() {
    let scenario = scenario(EVERYTHING);
    let hash = |scenario: &Scenario| {
        let (_, hash) = run(scenario, TraceHash::default());
        let hash = hash.lock().expect("no panic");
        (hash.value(), hash.events())
    };
    let once = hash(&scenario);
    assert_eq!(hash(&scenario), once);
    assert_ne!(hash(&Scenario { seed: 5, ..scenario }), once);
}

/// A writer that takes some bytes and no more.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_failure_to_write_is_kept() {
    let scenario = scenario(EVERYTHING);
    let trace = Trace::new(&scenario, Filter::default(), Full(1_000));
    let (report, trace) = run(&scenario, trace);
    assert!(report.packets > 1_000);
    let mut trace = trace.lock().expect("no panic");
    assert!(trace.failed());
    assert_eq!(trace.finish().expect_err("full").kind(), io::ErrorKind::StorageFull);
}
