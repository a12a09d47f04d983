//! docs/simulator.md and the code agree: every key that is read is described.

use farhaul_sim::Plan;

const DOC: &str = include_str!("../../../docs/simulator.md");

/// The keys that the reader says there are, where it finds one that there is not.
fn keys(text: &str) -> Vec<String> {
    let problems = Plan::parse(text, &[], None).expect_err("no such key").to_string();
    let list = problems.lines().find_map(|line| line.split_once("; there are "));
    let (_, list) = list.unwrap_or_else(|| panic!("no list of keys: {problems}"));
    list.split(", ").map(str::to_owned).collect()
}

#[test]
fn every_key_is_described() {
    let link = "[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = 1\n";
    let flow = "[[flow]]\nfrom = \"a\"\nto = \"b\"\n";
    let unknown = "zzzzzzzzzzzzzzzz = 1";
    let texts = [
        format!("{unknown}\nduration = \"1s\"\n{link}{flow}"),
        format!("duration = \"1s\"\n{link}{unknown}\n{flow}"),
        format!("duration = \"1s\"\n{link}reverse = {{ {unknown} }}\n{flow}"),
        format!("duration = \"1s\"\n{link}{flow}{unknown}\n"),
        format!("duration = \"1s\"\n{link}{flow}{unknown}\nprotocol = \"cbr\"\nrate = 1\n"),
        format!("duration = \"1s\"\n{link}{flow}{unknown}\nprotocol = \"tcp-cubic\"\n"),
        format!("duration = \"1s\"\n{link}{flow}options = {{ {unknown} }}\n"),
        format!(
            "duration = \"1s\"\n{link}{flow}protocol = \"tcp-cubic\"\noptions = {{ {unknown} }}\n"
        ),
        format!("duration = \"1s\"\n{link}{flow}[[node]]\n{unknown}\nname = \"a\"\n"),
        format!("duration = \"1s\"\n{link}{flow}[[host]]\n{unknown}\nname = \"x\"\n"),
    ];
    let mut count = 0;
    for key in texts.iter().flat_map(|text| keys(text)) {
        let shown = [format!("`{key}`"), format!("[[{key}]]"), format!("[{key}]")];
        assert!(shown.iter().any(|shown| DOC.contains(shown)), "docs/simulator.md lacks {key}");
        count += 1;
    }
    assert!(count > 60, "{count}");
}
