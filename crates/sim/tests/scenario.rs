//! Scenario files: what they make, and what is said of wrong ones.

use core::time::Duration;

use farhaul_sim::{Plan, Point, Problems, Protocol, Scenario};

fn plan(text: &str) -> Result<Plan, Problems> {
    Plan::parse(text, &[], None)
}

/// The one scenario of `text` that has no sweep.
fn scenario(text: &str) -> Scenario {
    plan(text).expect("a scenario").point(0).expect("its only point").scenario
}

const LINK: &str = "duration = \"2s\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"10M\"\n";
const FLOW: &str = "[[flow]]\nfrom = \"a\"\nto = \"b\"\n";

/// A link of these keys, and a flow.
fn with_link(keys: &str) -> Scenario {
    scenario(&format!("{LINK}{keys}\n{FLOW}"))
}

/// What is said of a file.
fn problems(text: &str) -> String {
    plan(text).expect_err("a file with mistakes").to_string()
}

#[test]
fn one_flow_runs() {
    let scenario = with_link("delay = \"5ms\"");
    assert!(matches!(scenario.flows[0].protocol, Protocol::Udt(_)));
    let report = scenario.run();
    assert_eq!(report.flows[0].series.len(), 100);
    assert!(report.flows[0].throughput_bps > 6e6, "{report:?}");
    assert!(report.links[0].utilisation.is_some_and(|share| (0.6..=1.0).contains(&share)));
    assert_eq!(report.indices.jain, Some(1.0));
}

/// Each mistake with its line, and what is said about it.
#[test]
fn mistakes_are_named_with_their_lines() {
    let link = |keys: &str| format!("{LINK}{keys}\n{FLOW}");
    let flow = |keys: &str| format!("{LINK}{FLOW}{keys}\n");
    let top = |keys: &str| format!("{keys}\n{LINK}{FLOW}");
    let cases = [
        // Keys.
        (top("sead = 3"), "line 1: the scenario has no key 'sead'; did you mean 'seed'?"),
        (link("dealy = \"1ms\""), "line 6: [[link]] has no key 'dealy'; did you mean 'delay'?"),
        (flow("protokol = \"udt\""), "line 9: [[flow]] has no key 'protokol'; did you mean"),
        (flow("colour = 1"), "has no key 'colour'; there are from, to, name"),
        (link("reverse = { dealy = \"1s\" }"), "line 6: reverse has no key 'dealy'; did you mean"),
        (
            LINK.replace("rate = \"10M\"", "rate = \"1000000G\"") + FLOW,
            "line 6: nothing on the way takes time",
        ),
        (
            LINK.replace("rate = \"10M\"", "rate = \"unlimited\"") + FLOW,
            "line 6: nothing on the way takes time: give a link a rate or a delay",
        ),
        (flow("messages = 1"), "line 9: 'messages' is a table: messages = { size = 1500 }"),
        (flow("messages = { every = \"1s\" }"), "line 9: messages needs 'size'"),
        (flow("messages = { size = 7 }"), "line 9: a message has from 8 to 1048576 bytes"),
        (flow("messages = { size = 9, every = \"0s\" }"), "line 9: 'every' must be longer"),
        (flow("options = { reorder_tolerance = \"x\" }"), "give packets, or adaptive:PACKETS"),
        (flow("options = { ms = 1500 }"), "line 9: options has no key 'ms'; did you mean 'mss'?"),
        (flow("protocol = \"cbr\"\nrate = \"1M\"\noptions = { mss = 1 }"), "no key 'options'"),
        (LINK.replace("duration = \"2s\"\n", "") + FLOW, "line 1: the scenario needs 'duration'"),
        (LINK.replace("rate = \"10M\"\n", "") + FLOW, "line 2: [[link]] needs 'rate'"),
        (format!("{LINK}[[flow]]\nto = \"b\"\n"), "line 6: [[flow]] needs 'from'"),
        (LINK.into(), "line 1: the scenario needs at least one [[flow]]"),
        ("duration = \"1s\"\n".into(), "the scenario needs at least one [[link]]"),
        (top("seed = 1\nseed = 2"), "line 2: duplicate key"),
        // Values.
        (link("delay = \"fast\""), "line 6: delay = \"fast\": `fast` is not a time (write 40ms"),
        (link("delay = 40"), "line 6: delay = \"40\": `40` is not a time"),
        (link("delay = \"40m\""), "line 6: delay = \"40m\""),
        (link("delay = [\"1ms\"]"), "line 6: 'delay' takes one value"),
        (link("delay = 2020-01-01"), "line 6: a text or a number is needed here, not a datetime"),
        (link("delay = \"-1ms\""), "is not a time"),
        (link("delay = nan"), "is not a time"),
        (link("delay = \"1e300s\""), "is not a time"),
        (link("loss = \"200%\""), "line 6: loss = \"200%\": `200%` is not a loss"),
        (link("reverse = { loss = \"2%%\" }"), "line 6: loss = \"2%%\""),
        (
            link("loss = { kind = \"foo\", p = 1 }"),
            "line 6: there is no loss of kind 'foo'; there are uniform, none, ber",
        ),
        (
            link("loss = { foo = \"5%\" }"),
            "line 6: loss of kind 'uniform' has no key 'foo'; there are kind, p",
        ),
        (link("loss = { p = 0, q = 0 }"), "line 6: loss of kind 'uniform' has no key 'q'"),
        (link("loss = { kind = \"every\", m = 9 }"), "line 6: loss of kind 'every' has no key 'm'"),
        (link("loss = { kind = \"list\", n = 9 }"), "loss of kind 'list' has no key 'n'"),
        (
            link("loss = { kind = \"ge\", foo = 9 }"),
            "line 6: loss of kind 'ge' has no key 'foo'; did you mean 'good'?",
        ),
        (
            link("loss = { kind = \"droptail\", limit = 1 }"),
            "line 6: there is no loss of kind 'droptail'",
        ),
        (link("queue = \"pi\""), "line 6: queue = \"pi\": `pi` is not a queue (write unlimited"),
        (
            link("queue = { kind = \"red\", min = 9, max = 3 }"),
            "line 6: queue = \"red:max=3,min=9\"",
        ),
        (link("queue = { kind = \"red\", min = 9, max = 3 }"), "max must be above min"),
        (
            link("queue = { foo = \"9p\" }"),
            "line 6: queue of kind 'droptail' has no key 'foo'; there are kind, packets, bytes, limit",
        ),
        (
            link("queue = { packets = 1, bytes = 2 }"),
            "line 6: queue of kind 'droptail' needs only one of",
        ),
        (link("queue = { packet = 9 }"), "has no key 'packet'; did you mean 'packets'?"),
        (link("queue = { kind = \"rde\" }"), "no queue of kind 'rde'; did you mean 'red'?"),
        (
            link("queue = { kind = \"codel\", targt = \"5ms\" }"),
            "line 6: queue of kind 'codel' has no key 'targt'; did you mean 'target'?",
        ),
        (link("queue = { knid = \"red\" }"), "has no key 'knid'; did you mean 'kind'?"),
        (link("queue = \"0p\""), "line 6: queue = \"0p\": `0p` is not a queue that holds a packet"),
        (
            link("queue = \"100B\""),
            "line 2: the queue of 'link1' has 100 bytes, and a packet of 'udt-1' 1500: write 1p",
        ),
        (link("queue = \"codel:limit=1499B\""), "line 2: the queue of 'link1' has 1499 bytes"),
        (link("queue = { packets = 0 }"), "`0p` is not a queue that holds a packet"),
        (link("queue = { bytes = \"many\" }"), "line 6: bytes = \"many\": `many` is not a size"),
        (link("queue = { bytes = \"true\" }"), "line 6: bytes = \"true\": `true` is not a size"),
        (link("loss = { kind = \"every\" }"), "line 6: loss of kind 'every' needs 'n'"),
        (link("loss = { kind = \"ge\", brust = 5 }"), "did you mean 'burst'?"),
        (link("queue = [\"bdp\"]"), "line 6: 'queue' is a text or a table"),
        (link("rate_changes = [\"2s:5M\", \"1s:5M\"]"), "line 6: rate_changes = \"2s:5M,1s:5M\""),
        (link("blackouts = \"1s\""), "line 6: blackouts = \"1s\""),
        (link("both = \"maybe\""), "line 6: both = \"maybe\""),
        (link("reverse = \"1M\""), "line 6: 'reverse' is a table of what differs"),
        (link("both = false\nreverse = { delay = \"1s\" }"), "that 'both = false' leaves out"),
        (LINK.replace("10M", "10Q") + FLOW, "line 5: rate = \"10Q\""),
        (LINK.replace("10M", "0") + FLOW, "line 5: rate = \"0\""),
        (LINK.replace("\"b\"", "\"a\"") + FLOW, "line 4: a link joins two different nodes"),
        (top("sample = \"0s\""), "line 1: must be longer than 0"),
        (top("sample = \"1ns\""), "line 1: more than 1000000 samples: take a longer 'sample'"),
        (top("sample = \"3s\""), "line 1: 'sample' must not be longer than 'duration'"),
        (
            top("sample = \"2us\"") + "count = 19\n",
            "line 1: the samples of 19 flows and 2 links are 21000000, more than 20000000: take a",
        ),
        (
            format!("{LINK}{FLOW}count = 100000\nstagger = \"1us\"\n").replace("2s", "200s"),
            "line 1: the samples of 100000 flows and 2 links are 20000400, more than",
        ),
        (LINK.replace("2s", "90000000s") + FLOW, "line 1: must be longer than 0 and at most"),
        (top("measure_from = \"2s\""), "nothing to measure"),
        (top("seed = -1"), "line 1: seed = \"-1\""),
        (top("seed = 0x10"), "line 1: a text or a number is needed here"),
        (top("tcp_friendliness = \"udt\""), "line 1: 'udt' is no TCP; write tcp-newreno"),
        // Flows.
        (flow("protocol = \"tcp\""), "line 9: no protocol 'tcp'; "),
        (flow("protocol = \"udb\"\noptions = {}"), "no protocol 'udb'; did you mean 'udt'?"),
        (flow("cc = \"none-such\""), "line 9: cc = \"none-such\": no congestion control law"),
        (flow("cc = \"udt:loud=1\""), "law 'udt' has no parameter 'loud'"),
        (
            flow("protocol = \"cbr\"\ncc = \"udt\"\nrate = \"1M\""),
            "line 10: a constant rate has no",
        ),
        (flow("protocol = \"cbr\""), "needs either 'rate' or 'schedule'"),
        (flow("protocol = \"cbr\"\nschedule = [\"1s:5M\", \"1s:0\"]"), "must ascend"),
        (flow("protocol = \"cbr\"\nschedule = \"1s\""), "write 10s:50M, or 10s:0 for silence"),
        (flow("protocol = \"cbr\"\nrate = \"1M\"\npacket_size = 9"), "from 28 to 65535"),
        (
            flow("protocol = \"cbr\"\nschedule = [\"3s:5M\"]\nrepeat = \"2s\""),
            "must be later than the schedule",
        ),
        (
            flow("protocol = \"cbr\"\nrate = \"1M\"\nbytes = 5000"),
            "line 11: a constant rate has no 'bytes': say when it stops",
        ),
        (
            flow("protocol = \"cbr\"\nschedule = \"0s:5M\"\nrepeat = \"2s\"\ntimes = 10001"),
            "line 12: times = \"10001\": give a number from 1 to 10000",
        ),
        (flow("protocol = \"cbr\"\nrate = \"1M\"\ntimes = 5"), "'times' needs 'repeat'"),
        (flow("options = { mss = 20 }"), "line 9: mss is 20, must be 96 to 65535"),
        (flow("options = 5"), "line 9: 'options' is a table: options = { mss = 1500 }"),
        (
            flow("protocol = \"tcp-cubic\"\noptions = 5"),
            "line 10: 'options' is a table: options = { packet_size = 1500 }",
        ),
        (
            top("tcp_friendliness = \"tcp-reno\"\ntcp_options = 5"),
            "line 2: 'tcp_options' is a table: tcp_options = { packet_size = 1500 }",
        ),
        (
            top("tcp_friendliness = \"tcp-reno\"\ntcp_options = { mss = 1500 }"),
            "line 2: tcp_options has no key 'mss'; ",
        ),
        (top("tcp_options = { packet_size = 1000 }"), "line 1: 'tcp_options' needs 'tcp_friend"),
        (
            top("tcp_friendliness = \"tcp-reno\""),
            "line 1: 'tcp_friendliness' is the share of TCP flows beside UDT: there is no TCP flow",
        ),
        (
            top("tcp_friendliness = \"tcp-reno\"") + "protocol = \"cbr\"\nrate = \"1M\"\n",
            "there is no TCP flow",
        ),
        (flow("protocol = \"tcp-cubic\"\narrivals = 5"), "'arrivals' needs 'bytes'"),
        (flow("protocol = \"tcp-cubic\"\narrivals = 0\nbytes = 9"), "a second above 0"),
        (
            flow("protocol = \"tcp-cubic\"\noptions = { delayed_ack = \"1s\" }"),
            "the delayed-ACK timer is not shorter",
        ),
        (flow("count = 0"), "line 9: count = \"0\": there would be no flow: leave the table out"),
        (flow("bytes = 0"), "line 9: bytes = \"0\": there is nothing to send: give at least 1"),
        (flow("bytes = \"0kB\""), "there is nothing to send"),
        (flow("start = \"2s\""), "line 6: 'udt-1' begins at 2s, and the run ends at 2s"),
        (
            flow("count = 5\nstagger = \"500ms\""),
            "line 6: 'udt-5' begins at 2s, and the run ends at 2s",
        ),
        (flow("count = -1"), "line 9: count = \"-1\": give a whole number of flows"),
        (flow("count = 2.7"), "line 9: count = \"2.7\": give a whole number of flows"),
        (flow("count = nan"), "give a whole number of flows"),
        (flow("count = 1e300"), "give a whole number of flows"),
        (flow("bytes = \"many\""), "line 9: bytes = \"many\""),
        (flow("start = \"2s\"\nstop = \"1s\""), "'stop' must be later than 'start'"),
        (format!("{LINK}[[flow]]\nfrom = \"a\"\nto = \"a\"\n"), "from one node to another"),
        (
            format!("{LINK}[[flow]]\nfrom = \"a\"\nto = \"c\"\n"),
            "line 8: no link leads to a node 'c'",
        ),
        (link("both = false"), "line 7: no links lead from 'a' to 'b' and back"),
        (link("[[node]]\nname = \"c\"\n[[flow]]\nfrom = \"a\"\nto = \"c\""), "from 'a' to 'c' and"),
        (link("[[node]]\nnome = \"c\""), "[[node]] needs 'name'"),
        // Names.
        (
            flow("name = \"x\"\n[[flow]]\nname = \"x\"\nfrom = \"b\"\nto = \"a\""),
            "another flow named 'x'",
        ),
        (
            link("name = \"x\"\n[[link]]\nname = \"x\"\nfrom = \"b\"\nto = \"c\"\nrate = 1"),
            "another link",
        ),
        // Tables.
        (
            top("link = 5\n").replace("[[link]]\nfrom", "[l]\nfrom"),
            "write [[link]], with two brackets",
        ),
        (top("node = [1]"), "write [[node]], each with its own keys"),
        (top("set = 5"), "[set] must be a table of variables"),
        (top("= 5"), "line 1: "),
        // Variables.
        (
            link("delay = \"$rtt\""),
            "line 6: there is no variable '$rtt'; give it a value under [set]",
        ),
        (
            link("delay = \"$rt\"\n[set]\nrtt = \"1ms\""),
            "line 6: there is no variable '$rt'; did you",
        ),
        (
            link("delay = \"$x * 2\"\n[set]\nx = \"udt\""),
            "line 6: 'udt' in 'udt * 2' is not a number",
        ),
        (link("delay = \"$x / 0\"\n[set]\nx = \"1s\""), "line 6: '1s / 0' has no finite value"),
        (link("delay = \"$x *\"\n[set]\nx = \"1s\""), "line 6: '1s *' ends with a sign"),
        (link("delay = \"$x * 2ms\"\n[set]\nx = \"1s\""), "by a number with a unit"),
        (link("[sweep]\nx = []"), "line 7: 'x' has no values"),
        (link("[sweep]\nx = [1,\n2, 1]"), "line 8: 'x' has the value '1' twice: more runs of"),
        (
            link("loss = \"$x\"\n[sweep]\nx = [\"1%\", \"1%\", \"0.01\"]"),
            "line 8: 'x' has '0.01', which is '1%' again",
        ),
        (link("[set]\nx = 1\n[sweep]\nx = [1, 2]"), "line 9: 'x' is under [set] too"),
        (
            link("[sweep]\nx = [1, 2]\n[[case]]\nname = \"y\"\nx = 3"),
            "line 7: 'x' is in a [[case]] too: leave one of them out",
        ),
        (link("[sweep]\nseeds = 0"), "line 7: 'seeds' is how many runs"),
        (link("[sweep]\nx = [{}]"), "line 7: a text or a number is needed here"),
        (link("[set]\nx = [1, 2]"), "line 7: a text or a number is needed here, not a"),
    ];
    for (text, expected) in cases {
        let said = problems(&text);
        assert!(said.contains(expected), "expected: {expected}\nsaid: {said}\nof:\n{text}");
    }
}

/// Several mistakes are reported together, in the order of the lines.
#[test]
fn all_mistakes_at_once() {
    let text = format!("seet = 1\n{LINK}delay = \"x\"\n{FLOW}cc = \"y\"\n");
    let Problems(found) = plan(&text).unwrap_err();
    let lines: Vec<Option<usize>> = found.iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [Some(1), Some(7), Some(11)], "{found:?}");
}

/// At one point of a sweep only.
#[test]
fn a_mistake_at_one_point_is_found() {
    let text = format!("{LINK}delay = \"$rtt\"\n{FLOW}[sweep]\nrtt = [\"1ms\", \"2\"]\n");
    assert_eq!(problems(&text).lines().count(), 1, "{}", problems(&text));
    assert!(problems(&text).starts_with("line 6: delay = \"2\""));
}

#[test]
fn models_as_tables_and_as_texts_are_the_same() {
    let queues = [
        ("\"bdp\"", "{ kind = \"droptail\" }"),
        ("\"100p\"", "{ packets = 100 }"),
        ("\"100p\"", "{ kind = \"droptail\", packets = 100 }"),
        ("\"64000B\"", "{ bytes = 64000 }"),
        ("\"64000B\"", "{ bytes = \"64kB\" }"),
        ("\"codel:limit=64000B\"", "{ kind = \"codel\", bytes = \"64kB\" }"),
        ("\"red:limit=64000B\"", "{ kind = \"red\", bytes = \"64kB\" }"),
        ("\"red:bytes=true\"", "{ kind = \"red\", bytes = true }"),
        ("\"red:limit=100p\"", "{ kind = \"red\", packets = 100 }"),
        ("\"red:max=15,min=5\"", "{ kind = \"red\", min = 5, max = 15 }"),
        ("\"codel\"", "{ kind = \"codel\" }"),
        ("\"codel:target=1ms\"", "{ kind = \"codel\", target = \"1ms\" }"),
    ];
    for (text, table) in queues {
        let queue = |value: &str| with_link(&format!("queue = {value}")).links[0].queue.clone();
        assert_eq!(queue(text), queue(table), "{table}");
    }
    let losses = [
        ("\"none\"", "{ kind = \"none\" }"),
        ("\"0.1%\"", "{ kind = \"uniform\", p = \"0.1%\" }"),
        ("\"0.1%\"", "{ p = 0.001 }"),
        ("\"ber:1e-7\"", "{ kind = \"ber\", p = 1e-7 }"),
        ("\"ge:p=1%,r=30%\"", "{ kind = \"ge\", p = \"1%\", r = \"30%\" }"),
        ("\"ge:loss=1%,burst=5\"", "{ kind = \"ge\", loss = \"1%\", burst = 5 }"),
        ("\"every:100\"", "{ kind = \"every\", n = 100 }"),
        ("\"gauss:mean=1000,sd=100\"", "{ kind = \"gauss\", mean = 1000, sd = 100 }"),
        ("\"poisson:mean=1000\"", "{ kind = \"poisson\", mean = 1000 }"),
        ("\"list:3,7-9\"", "{ kind = \"list\", packets = \"3,7-9\" }"),
    ];
    for (text, table) in losses {
        let loss = |value: &str| with_link(&format!("loss = {value}")).links[0].config.loss.clone();
        assert_eq!(loss(text), loss(table), "{table}");
    }
}

#[test]
fn directions() {
    let scenario = with_link(
        "name = \"x\"\ndelay = \"9ms\"\nloss = \"1%\"\nreverse = { rate = \"1M\", loss = \"none\" }",
    );
    let [there, back] = &scenario.links[..] else { panic!("two directions: {:?}", scenario.links) };
    assert_eq!((&*there.name, &*back.name), ("x", "x-back"));
    assert_eq!((there.from, there.to, back.from, back.to), (0, 1, 1, 0));
    assert_eq!(there.config.delay, back.config.delay);
    assert_eq!(there.config.rate, "10M".parse().ok());
    assert_eq!(back.config.rate, "1M".parse().ok());
    assert_eq!(back.config.loss, Default::default());
    assert_ne!(there.config.loss, back.config.loss);
    // A triangle of one-way links.
    let way = |from, to| {
        format!("[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"1M\"\nboth = false\n")
    };
    let ring = [way("a", "b"), way("b", "c"), way("c", "a")].concat();
    let scenario = self::scenario(&format!("duration = \"3s\"\n{ring}{FLOW}"));
    assert_eq!(scenario.links.len(), 3);
    assert!(scenario.run().flows[0].throughput_bps > 1e5);
}

#[test]
fn the_queue_takes_the_longest_round_trip_of_its_flows() {
    let text = "duration = \"5s\"\n\
        [[link]]\nname = \"shared\"\nfrom = \"m\"\nto = \"b\"\nrate = \"12M\"\ndelay = \"10ms\"\n\
        [[link]]\nfrom = \"a\"\nto = \"m\"\nrate = \"unlimited\"\ndelay = \"5ms\"\n\
        [[link]]\nfrom = \"far\"\nto = \"m\"\nrate = \"unlimited\"\ndelay = \"40ms\"\n\
        [[flow]]\nfrom = \"a\"\nto = \"b\"\nprotocol = \"cbr\"\nrate = \"100M\"\n";
    // 12 Mb/s over 30 ms are 30 packets, over 100 ms a hundred. A full queue shows it.
    let longest = |text: &str| scenario(text).run().links[0].queue.max;
    let near = longest(text);
    let flow = "[[flow]]\nfrom = \"far\"\nto = \"b\"\nprotocol = \"cbr\"\nrate = \"1k\"\n";
    let far = longest(&format!("{text}{flow}"));
    assert!((29..=32).contains(&near), "{near}");
    assert!((99..=102).contains(&far), "{far}");
}

fn values(point: &Point) -> String {
    point.values.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_sweep_goes_through_all_values() {
    let text = format!(
        "seed = 5\n{LINK}delay = \"$rtt / 2\"\n{FLOW}cc = \"$cc\"\n\
         [sweep]\nrtt = [\"10ms\", \"1ms\"]\ncc = [\"udt\", \"reno\", \"udt:noisy\"]\nseeds = 2\n"
    );
    let plan = plan(&text).unwrap();
    assert_eq!(plan.swept().collect::<Vec<_>>(), ["rtt", "cc"]);
    assert_eq!((plan.seeds(), plan.points()), (2, 12));
    let points: Vec<_> = (0..12).map(|n| plan.point(n).unwrap()).collect();
    let seen: Vec<(String, u64, u64)> =
        points.iter().map(|point| (values(point), point.repetition, point.scenario.seed)).collect();
    let expected = [
        ("10ms udt", 0, 5),
        ("10ms udt", 1, 6),
        ("10ms reno", 0, 5),
        ("10ms reno", 1, 6),
        ("10ms udt:noisy", 0, 5),
        ("10ms udt:noisy", 1, 6),
        ("1ms udt", 0, 5),
        ("1ms udt", 1, 6),
        ("1ms reno", 0, 5),
        ("1ms reno", 1, 6),
        ("1ms udt:noisy", 0, 5),
        ("1ms udt:noisy", 1, 6),
    ];
    assert_eq!(seen, expected.map(|(values, n, seed)| (values.to_owned(), n, seed)));
    assert_eq!(points[0].scenario.links[0].config.delay, Duration::from_millis(5));
    assert_eq!(points[8].scenario.links[0].config.delay, Duration::from_micros(500));
    assert_eq!(points[8].scenario.flows[0].protocol.law().unwrap(), "reno");
}

#[test]
fn overrides() {
    let text = format!(
        "{LINK}delay = \"$rtt\"\n{FLOW}count = \"$n\"\n\
         [set]\nrtt = \"1ms\"\n[sweep]\nn = [1, 2]\n"
    );
    let with = |pairs: &[(&str, &str)], seed| {
        let pairs: Vec<_> = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Plan::parse(&text, &pairs, seed)
    };
    let names = |plan: &Plan| plan.swept().map(str::to_owned).collect::<Vec<_>>();
    let delay = |plan: &Plan, n| plan.point(n).unwrap().scenario.links[0].config.delay;
    let plan = with(&[("rtt", "3ms")], Some(9)).unwrap();
    assert_eq!((plan.points(), delay(&plan, 0)), (2, Duration::from_millis(3)));
    assert_eq!(plan.point(1).unwrap().scenario.seed, 9);
    // A list sweeps, as the last variable; one value for a swept variable leaves one point.
    let plan = with(&[("rtt", "[3ms, 4ms]"), ("n", "5")], None).unwrap();
    assert_eq!((names(&plan), plan.points()), (vec!["n".into(), "rtt".into()], 2));
    assert_eq!(delay(&plan, 1), Duration::from_millis(4));
    assert_eq!(plan.point(1).unwrap().scenario.flows.len(), 5);
    let plan = with(&[("seeds", "3"), ("n", "[]")], None);
    assert!(plan.unwrap_err().to_string().contains("'n' has no values"));
    assert_eq!(with(&[("seeds", "3")], None).unwrap().points(), 6);
    // What is wrong with them stands in no line of the file.
    let error = with(&[("rt", "1ms")], None).unwrap_err().to_string();
    let expected = "--set rt=1ms: the file has no variable 'rt'; did you mean 'rtt'?";
    assert_eq!(error, expected);
    let without = Plan::parse(&format!("{LINK}{FLOW}"), &[("x".into(), "1".into())], None);
    let expected = "--set x=1: the file has no variable 'x'; give it one under [set] or [sweep]";
    assert_eq!(without.unwrap_err().to_string(), expected);
    let error = with(&[("rtt", "[1ms, 1000us]")], None).unwrap_err().to_string();
    assert_eq!(error, "--set rtt=[1ms, 1000us]: 'rtt' has '1000us', which is '1ms' again");
    // A sweep may go down to none, a table that is never any is a mistake.
    let plan = with(&[("n", "[0, 1]")], None).unwrap();
    assert_eq!([0, 1].map(|n| plan.point(n).unwrap().scenario.flows.len()), [0, 1]);
    for seeds in ["0", "x", "[1, 2]"] {
        let error = with(&[("seeds", seeds)], None).unwrap_err().to_string();
        assert!(error.starts_with(&format!("--set seeds={seeds}: 'seeds' is how")), "{error}");
    }
}

/// A variable that no value uses is no mistake: it may be there for `--set` to choose from.
#[test]
fn a_variable_may_be_unused() {
    let plan = plan(&format!("{LINK}{FLOW}[set]\nx = 1\n[sweep]\ny = [1, 2]\n")).unwrap();
    assert_eq!(plan.points(), 2);
    assert_eq!(plan.point(0).unwrap().scenario, plan.point(1).unwrap().scenario);
}

#[test]
fn names_and_times_of_several_flows() {
    let text = format!(
        "{LINK}{FLOW}count = 2\nstagger = \"100ms\"\nstart = \"50ms\"\n{FLOW}\
         {FLOW}protocol = \"tcp-newreno\"\nname = \"tcp\"\ncount = 2\n\
         {FLOW}count = \"$none\"\n[set]\nnone = 0\n"
    );
    let scenario = scenario(&text);
    let names: Vec<&str> = scenario.flows.iter().map(|flow| &*flow.name).collect();
    assert_eq!(names, ["udt-1", "udt-2", "udt-3", "tcp-1", "tcp-2"]);
    assert_eq!(scenario.flows[1].start, Duration::from_millis(150));
}

#[test]
fn indices_of_a_run() {
    let report = scenario(&format!(
        "tcp_friendliness = \"tcp-newreno\"\nmeasure_from = \"1s\"\n{LINK}delay = \"5ms\"\n{FLOW}\
         {FLOW}protocol = \"tcp-newreno\"\n{FLOW}protocol = \"cbr\"\nrate = \"1M\"\n"
    ))
    .run();
    let [udt, tcp, cbr] = &report.flows[..] else { panic!("three flows") };
    let indices = report.indices;
    let sum = udt.throughput_bps + tcp.throughput_bps;
    assert!((indices.efficiency_bps - sum).abs() < 1.0, "{indices:?}");
    let squares: f64 =
        [udt, tcp].iter().map(|flow| flow.throughput_bps * flow.throughput_bps).sum();
    assert!((indices.jain.unwrap() - sum * sum / (2.0 * squares)).abs() < 1e-9);
    assert!(indices.stability.is_some_and(|value| value > 0.0));
    assert!(
        indices.tcp_friendliness.is_some_and(|value| value > 0.0 && value < 3.0),
        "{indices:?}"
    );
    assert!((0.9e6..1e6).contains(&cbr.throughput_bps), "{cbr:?}");
    assert_eq!(report.measured_s, (1.0, 2.0));
}

/// Flows that are not there at the same time have no more than the link together.
#[test]
fn efficiency_is_no_more_than_there_is() {
    let flows = |keys: &str| {
        let link = LINK.replace("2s", "10s");
        scenario(&format!("{link}delay = \"1ms\"\n{FLOW}\n{FLOW}{keys}\n")).run()
    };
    let sum = |report: &farhaul_sim::Report| {
        report.flows.iter().map(|flow| flow.throughput_bps).sum::<f64>()
    };
    for keys in ["start = \"5s\"", "stop = \"2s\"", "start = \"4s\"\nstop = \"6s\""] {
        let report = flows(keys);
        let bytes: u64 = report.flows.iter().map(|flow| flow.bytes).sum();
        let efficiency = report.indices.efficiency_bps;
        assert!((efficiency - bytes as f64 * 8.0 / 10.0).abs() < 1.0, "{keys}: {efficiency}");
        assert!(efficiency < 10e6 && sum(&report) > 10e6, "{keys}: {efficiency}");
    }
    // Where they are, it is the sum; also where nobody is there at first, or in the end.
    for keys in ["", "bytes = 500"] {
        let report = flows(keys);
        assert_eq!(report.indices.efficiency_bps, sum(&report), "{keys}");
    }
    let one = format!("{LINK}delay = \"1ms\"\n{FLOW}start = \"1s\"\nstop = \"1500ms\"\n");
    let report = scenario(&one).run();
    assert_eq!(report.indices.efficiency_bps, report.flows[0].throughput_bps);
}

/// Whatever a file says: an answer, soon, and no panic.
#[test]
fn hostile_files() {
    let deep = format!("x = {}{}", "[".repeat(100_000), "]".repeat(100_000));
    let tables = format!("x = {}", "{ x = ".repeat(100_000));
    let long = "y".repeat(200_000);
    let doubled =
        format!("{LINK}delay = \"{}\"\n{FLOW}[set]\nx = \"{long}\"\n", "$x".repeat(9_999));
    let digits = format!("{LINK}delay = \"$x * 2\"\n{FLOW}[set]\nx = \"{}\"\n", "1".repeat(4_000));
    let key = format!(
        "{LINK}{long} = 1\n[[link]]\nfrom = \"{long}\"\nto = \"x\"\nrate = 1\n\
        [[flow]]\nfrom = \"{long}z\"\nto = \"x\"\n"
    );
    let many = format!("{LINK}{FLOW}count = 100000\n{FLOW}count = 100000\n");
    let phases = format!(
        "{LINK}{FLOW}protocol = \"cbr\"\nschedule = \"0s:1M\"\nrepeat = \"1s\"\ntimes = 10000\ncount = 100000\n"
    );
    let list = format!("{:?}", (1..=1_000).collect::<Vec<_>>());
    let points = format!("{LINK}{FLOW}[sweep]\na = {list}\nb = {list}\nc = {list}\nd = {list}\n");
    let parts = format!("{LINK}{FLOW}count = 100000\n[sweep]\na = {list}\n");
    let wrong = format!("{LINK}{FLOW}x = \"$a\"\n[sweep]\na = {list}\nb = {list}\n");
    let seeds = format!("{LINK}{FLOW}[sweep]\nseeds = 18446744073709551615\n");
    let values = format!("{LINK}{FLOW}sample = \"1ms\"\n[sweep]\nseeds = 900000\n");
    let pair = |n| format!("[[link]]\nfrom = \"a{n}\"\nto = \"b{n}\"\nrate = 1\n");
    let nodes = format!("{LINK}{FLOW}{}", (0..9_999).map(pair).collect::<String>());
    let cases = [
        "",
        "\0\0\0",
        "\u{feff}",
        "[[",
        "a = 1\na = 2",
        "[[link]]\n[link]",
        "=",
        "x = nan",
        "duration = inf",
        "duration = \"1e308s\"",
        &deep,
        &tables,
        &long,
        &doubled,
        &digits,
        &key,
        &many,
        &phases,
        &points,
        &parts,
        &wrong,
        &seeds,
        &values,
        &nodes,
    ];
    for text in cases {
        let head: String = text.chars().take(60).collect();
        assert!(plan(text).is_err(), "{head}");
    }
}

/// What is allowed at the edges of the ranges runs too.
#[test]
fn extremes_run() {
    let long = "duration = \"366000s\"\nsample = \"366000s\"";
    let cases = [
        format!("{LINK}{FLOW}").replace("2s", "1ns"),
        format!("{LINK}{FLOW}").replace("2s", "150ns"),
        format!("{LINK}{FLOW}bytes = 1\n"),
        format!("{LINK}{FLOW}start = \"1.999999999s\"\n"),
        format!("sample = \"2s\"\n{LINK}{FLOW}"),
        format!("{LINK}queue = \"1500B\"\n{FLOW}"),
        format!("{LINK}queue = \"100B\"\n{FLOW}options = {{ mss = 100 }}\n"),
        format!("{LINK}reverse = {{ queue = \"100B\" }}\n{FLOW}"),
        format!("{LINK}delay = \"3000000000s\"\n{FLOW}"),
        format!("{LINK}jitter = \"3000000000s:reorder\"\n{FLOW}"),
        format!("{LINK}loss = 1\n{FLOW}"),
        format!("{LINK}corrupt = 1\nduplicate = 1\n{FLOW}"),
        format!("{LINK}queue = \"1p\"\n{FLOW}"),
        format!("{LINK}{FLOW}").replace("10M", "1"),
        format!("{LINK}{FLOW}bytes = 5000\n").replace("10M", "9000000000000000"),
        format!(
            "{LINK}{FLOW}options = {{ send_memory = \"1024GiB\", receive_memory = \"1024GiB\" }}\n"
        ),
        format!("{LINK}rate_changes = \"1ms:1k\"\n{FLOW}bytes = 9\n")
            .replace("duration = \"2s\"", long),
    ];
    for text in cases {
        let report = scenario(&text).run();
        assert!(report.indices.efficiency_bps.is_finite(), "{text}");
    }
}

/// The first of many transfers is not all of them.
#[test]
fn short_transfers_do_not_end_with_the_first() {
    let keys = "protocol = \"tcp-newreno\"\narrivals = 5\nbytes = 1000\nstop = \"1s\"\n";
    let report = scenario(&format!("sample = \"10ms\"\n{LINK}{FLOW}{keys}")).run();
    let flow = &report.flows[0];
    assert!(flow.bytes > 1_000 && flow.series.contains(&0.8e6), "{flow:?}");
    assert_eq!(flow.stop_s, 1.0);
    // One connection ends when everything has been delivered.
    let keys = keys.replace("arrivals = 5\n", "");
    let report = scenario(&format!("sample = \"10ms\"\n{LINK}{FLOW}{keys}")).run();
    assert_eq!(report.flows[0].stop_s, 0.01);
}

/// Samples before the first round trip is over say nothing of how long it takes.
#[test]
fn a_round_trip_is_not_told_of_before_it_is_measured() {
    for protocol in ["udt", "tcp-newreno", "tcp-cubic"] {
        let text = format!("sample = \"20ms\"\n{LINK}delay = \"100ms\"\n{FLOW}");
        let report = scenario(&format!("{text}protocol = \"{protocol}\"\n")).run();
        let rtt = report.flows[0].rtt_ms.expect("round trips are measured");
        assert!(rtt.min >= 200.0 && rtt.max < 1_000.0, "{protocol}: {rtt:?}");
    }
}

/// A link is not used for more than it can carry, however fast its rate changes.
#[test]
fn utilisation_counts_every_change_of_the_rate() {
    let link = "rate_changes = \"0s:10M,500us:100M/1ms\"\nqueue = \"1000p\"\n";
    let full = scenario(&format!("{LINK}{link}{FLOW}protocol = \"cbr\"\nrate = \"200M\"\n")).run();
    let link = &full.links[0];
    assert_eq!(link.rate_bps, Some(55e6));
    assert!(link.utilisation.is_some_and(|share| (0.99..=1.0).contains(&share)), "{link:?}");
}

/// What a constant rate has lost is what was sent and has not come, each packet counted once.
#[test]
fn losses_and_copies_of_a_constant_rate() {
    let flow = |keys: &str| {
        let text = format!("{LINK}{keys}{FLOW}protocol = \"cbr\"\nrate = \"6M\"\n");
        scenario(&text).run().flows[0].clone()
    };
    // 500 packets a second; at the end 50 of them are on their way.
    let plain = flow("delay = \"100ms\"\n");
    assert_eq!((plain.loss_rate, plain.packets_sent), (0.0, 1_001));
    let lossy = flow("loss = \"every:10\"\n");
    assert!((0.0995..=0.1).contains(&lossy.loss_rate), "{lossy:?}");
    let damaged = flow("corrupt = 1\n");
    assert!(damaged.loss_rate > 0.99 && damaged.bytes == 0, "{damaged:?}");
    let cut = flow("blackouts = \"1s+5s\"\n");
    assert!((0.49..=0.51).contains(&cut.loss_rate), "{cut:?}");
    let full = flow("rate_changes = \"0s:3M\"\nqueue = \"10p\"\n");
    assert!((0.48..=0.51).contains(&full.loss_rate), "{full:?}");
    let copied = flow("delay = \"100ms\"\nduplicate = 1\nqueue = \"unlimited\"\n");
    assert_eq!((copied.loss_rate, copied.bytes), (0.0, plain.bytes));
    assert!(copied.throughput_bps < 6e6, "{copied:?}");
}

/// What a schedule ends with goes on after its last time.
#[test]
fn the_last_rate_of_a_schedule_holds() {
    let flow =
        "protocol = \"cbr\"\nschedule = [\"0s:0\", \"100ms:6M\"]\nrepeat = \"200ms\"\ntimes = 2\n";
    let report = scenario(&format!("sample = \"100ms\"\n{LINK}{FLOW}{flow}")).run();
    let on: Vec<bool> = report.flows[0].series.iter().map(|rate| *rate > 3e6).collect();
    assert_eq!(on[..4], [false, true, false, true]);
    assert!(on[4..].iter().all(|on| *on), "{on:?}");
}

#[test]
fn cases_are_variables_that_go_together() {
    let text = "duration = \"$time\"\n[set]\ntime = \"1s\"\n[sweep]\nrtt = [\"1ms\", \"2ms\"]\n\
        [[case]]\nname = \"slow\"\nrate = \"10M\"\n\
        [[case]]\nname = \"fast\"\nrate = \"1G\"\ntime = \"3s\"\n\
        [[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"$rate\"\ndelay = \"$rtt / 2\"\n\
        [[flow]]\nname = \"$case\"\nfrom = \"a\"\nto = \"b\"\n";
    let sweep = plan(text).expect("a plan");
    assert_eq!(sweep.swept().collect::<Vec<_>>(), ["case", "rtt"]);
    assert_eq!(sweep.points(), 4);
    let at = |point| sweep.point(point).expect("a point");
    let (slow, fast) = (at(1), at(2));
    assert_eq!(values(&slow), "slow 2ms");
    assert_eq!((slow.scenario.duration.as_secs(), fast.scenario.duration.as_secs()), (1, 3));
    assert_eq!(fast.scenario.flows[0].name, "fast");
    let rate = fast.scenario.links[0].config.rate.expect("a rate");
    assert_eq!(rate.bits_per_second(), 1_000_000_000);

    let with = |name: &str, value: &str| Plan::parse(text, &[(name.into(), value.into())], None);
    assert_eq!(with("case", "fast").expect("a plan").points(), 2);
    let error = with("case", "fst").unwrap_err().to_string();
    assert!(error.contains("there is no case 'fst'; did you mean 'fast'?"), "{error}");

    // What is set from outside goes before the cases, also where only they have it.
    let seconds = |plan: &Plan, point| plan.point(point).unwrap().scenario.duration.as_secs();
    let short = with("time", "2s").expect("a plan");
    assert_eq!([0, 1, 2, 3].map(|point| seconds(&short, point)), [2; 4]);
    let both = with("time", "[4s, 5s]").expect("a plan");
    assert_eq!(both.points(), 8);
    assert_eq!([0, 1, 4, 5].map(|point| seconds(&both, point)), [4, 5, 4, 5]);
    let slower = with("rate", "1M").expect("a plan");
    let rate = |point| slower.point(point).unwrap().scenario.links[0].config.rate;
    assert_eq!([0, 3].map(rate), ["1M".parse().ok(); 2]);
    let error = with("rates", "1M").unwrap_err().to_string();
    assert!(error.contains("the file has no variable 'rates'; did you mean 'rate'?"), "{error}");

    let error = plan(&text.replace("\"fast\"", "\"slow\"")).unwrap_err().to_string();
    assert!(error.contains("a case needs a 'name' of its own"), "{error}");
}
