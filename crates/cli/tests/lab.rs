//! `farhaul lab`: its JSON, its files, its exit codes, and which stored results it takes.

mod common;

use std::fs;
use std::path::Path;

use common::ran::{self, Ran};
use farhaul_lab::certificate::Battery;
use farhaul_lab::experiment::{VERSION, catalogue};
use serde_json::{Value, json};

/// Runs `farhaul lab` in `directory`.
fn lab(directory: &Path, args: &[&str]) -> Ran {
    ran::farhaul(directory, "lab", args)
}

/// The JSON that it prints.
fn json(directory: &Path, args: &[&str]) -> Value {
    ran::json(directory, "lab", args)
}

/// The names of all experiments.
fn ids(directory: &Path) -> Vec<String> {
    let listed = json(directory, &["list", "--json"]);
    let id = |one: &Value| one["id"].as_str().expect("a name").to_owned();
    listed.as_array().expect("a list").iter().map(id).collect()
}

/// The names of all laws.
fn laws(directory: &Path) -> Vec<String> {
    let listed = ran::json(directory, "cc", &["list", "--json"]);
    let name = |one: &Value| one["name"].as_str().expect("a name").to_owned();
    listed["laws"].as_array().expect("a list").iter().map(name).collect()
}

/// A folder with a result of each experiment as it is now and a certificate of each law, none of
/// which was ever run.
fn stored() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    ids(folder.path()).iter().for_each(|id| store(folder.path(), id, &json!({})));
    for law in laws(folder.path()) {
        let item = json!({"name": "stored item", "measured": 12.5, "score": 77});
        let battery = Battery::hash();
        let certificate = json!({"law": law, "overall": 77, "items": [item],
            "version": VERSION, "battery": battery});
        let path = folder.path().join(format!("certificate-{law}.json"));
        fs::write(path, certificate.to_string()).expect("a file");
    }
    folder
}

fn store(folder: &Path, id: &str, members: &Value) {
    let mut outcome = members.clone();
    let experiment = catalogue().into_iter().find(|one| one.id == id).expect("an experiment");
    let own =
        [("id", id), ("title", "stored"), ("version", VERSION), ("experiment", &experiment.hash)];
    for (key, value) in own {
        if outcome[key].is_null() {
            outcome[key] = value.into();
        }
    }
    fs::write(folder.join(format!("{id}.json")), outcome.to_string()).expect("a file");
}

#[test]
fn the_list_has_all_experiments() {
    let folder = tempfile::tempdir().expect("a folder");
    let listed = json(folder.path(), &["list", "--json"]);
    assert!(listed.as_array().is_some_and(|list| list.len() > 20), "{listed}");
    for one in listed.as_array().into_iter().flatten() {
        for key in ["id", "source", "title", "shows"] {
            assert!(one[key].as_str().is_some_and(|text| !text.is_empty()), "{key}: {one}");
        }
        assert!(one["minutes"].as_f64().is_some_and(|minutes| minutes > 0.0), "{one}");
    }
    let text = lab(folder.path(), &["list"]).out;
    assert!(ids(folder.path()).iter().all(|id| text.contains(id.as_str())), "{text}");
}

#[test]
fn a_run_leaves_its_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = json(folder.path(), &["run", "gu-3-time", "--quick", "--out", "here", "--json"]);
    let outcome = &run["outcomes"][0];
    assert_eq!((&outcome["id"], &outcome["quick"]), (&"gu-3-time".into(), &true.into()));
    assert_eq!(outcome["command"], "farhaul lab run gu-3-time --quick");
    assert!(outcome["checks"].as_array().is_some_and(|checks| !checks.is_empty()), "{outcome}");
    for file in run["files"].as_array().expect("a list") {
        let path = folder.path().join(file.as_str().expect("a path"));
        assert!(fs::metadata(&path).is_ok_and(|file| file.len() > 0), "{file}");
    }
    for file in ["gu-3-time.json", "gu-3-time.svg", "gu-3-time.png", "gu-3-time.csv"] {
        assert!(folder.path().join("here").join(file).exists(), "{file}");
    }
}

#[test]
fn an_unknown_experiment_is_bad_usage() {
    let folder = tempfile::tempdir().expect("a folder");
    let ended = lab(folder.path(), &["run", "gu-9-9"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.errors.contains("there is no experiment 'gu-9-9'"), "{}", ended.errors);
    for (word, hint) in [
        ("GU-4-8", "; did you mean 'gu-4-8'? `"),
        ("trust-teory", "; did you mean 'trust-theory'? `"),
        ("weather", "; `farhaul lab list` shows all"),
    ] {
        let ended = lab(folder.path(), &["run", "gu-4-8", word]);
        assert_eq!(ended.code, Some(2), "{word}");
        assert!(ended.errors.contains(hint), "{}", ended.errors);
    }
}

#[test]
fn an_experiment_named_twice_is_run_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let args = ["run", "gu-3-time", "gu-3-time", "--quick", "--json"];
    assert_eq!(json(folder.path(), &args)["outcomes"].as_array().map(Vec::len), Some(1));
}

#[test]
fn that_a_full_result_is_replaced_by_a_reduced_one_is_said() {
    let folder = stored();
    let run = || lab(folder.path(), &["run", "gu-3-time", "--quick", "--out", "."]).errors;
    let said = "gu-3-time: the reduced result replaces the full one";
    assert!(run().contains(said));
    assert!(!run().contains(said), "it is reduced already");
}

#[test]
fn a_folder_that_takes_no_files_is_told_before_anything_is_run() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("file"), "").expect("a file");
    // All in full: half an hour.
    for args in [&["run", "--all", "--out"][..], &["report", "--out"]] {
        for out in ["file", "file/below", "/proc"] {
            let ended = lab(folder.path(), &[args, &[out]].concat());
            assert_eq!(ended.code, Some(2), "{out}: {}", ended.errors);
            let message = format!("cannot write into {out}: ");
            assert!(ended.errors.contains(&message), "{}", ended.errors);
        }
    }
}

#[test]
fn a_report_takes_what_is_stored() {
    let folder = stored();
    let ended = lab(folder.path(), &["report", "--out", "."]);
    assert_eq!(ended.code, Some(0), "{}", ended.errors);
    assert!(ended.out.contains("page: ./report.html"), "{}", ended.out);
    let page = fs::read_to_string(folder.path().join("report.html")).expect("a page");
    assert_eq!(page.matches(">stored</a>").count(), ids(folder.path()).len());
}

#[test]
fn a_failed_check_is_an_exit_code() {
    let folder = stored();
    let fails = json!({"checks": [
        {"what": "a rate", "measured": "0", "tolerance": "at least 1", "verdict": "fail"},
        {"what": "another", "measured": "0", "verdict": "fail"},
    ]});
    store(folder.path(), "gu-4-8", &fails);
    let ended = lab(folder.path(), &["report", "--out", "."]);
    assert_eq!(ended.code, Some(4), "{}", ended.errors);
    assert!(ended.errors.contains("not as expected: gu-4-8"), "{}", ended.errors);
    assert!(ended.out.contains("FAIL      a rate (at least 1): 0\n"), "{}", ended.out);
    assert!(ended.out.contains("FAIL      another: 0\n"), "{}", ended.out);
}

#[test]
fn a_result_of_another_experiment_is_not_taken() {
    let folder = stored();
    fs::copy(folder.path().join("gu-4-2.json"), folder.path().join("gu-3-time.json"))
        .expect("a file");
    let report = json(folder.path(), &["report", "--out", ".", "--json", "--quick"]);
    let outcomes = report["outcomes"].as_array().expect("a list");
    let of = |id: &str| outcomes.iter().filter(|one| one["id"] == id).collect::<Vec<_>>();
    assert_eq!((of("gu-4-2").len(), of("gu-3-time").len()), (1, 1), "{report}");
    assert_ne!(of("gu-3-time")[0]["title"], "stored");
}

#[test]
fn a_reduced_result_is_not_taken_for_the_whole_one() {
    let folder = stored();
    store(folder.path(), "gu-4-8", &json!({"quick": true}));
    let title = |args: &[&str]| {
        let report = json(folder.path(), args);
        let outcomes = report["outcomes"].as_array().expect("a list").clone();
        outcomes.into_iter().find(|one| one["id"] == "gu-4-8").expect("all")["title"].clone()
    };
    assert_eq!(title(&["report", "--out", ".", "--json", "--quick"]), "stored");
    assert_ne!(title(&["report", "--out", ".", "--json"]), "stored");
}

#[test]
fn a_certificate_leaves_its_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let law = "udt:window=8,noisy=true";
    let args = ["certify", "--cc", law, "--quick", "--seed", "12", "--out", "here"];
    let certified = json(folder.path(), &[&args[..], &["--cc", "cubic", "--json"]].concat());
    let certificates = certified["certificates"].as_array().expect("a list");
    let [certificate, _] = certificates.as_slice() else { panic!("{certified}") };
    check_side_by_side(folder.path(), &certified, law);
    assert_eq!((&certificate["law"], &certificate["quick"]), (&law.into(), &true.into()));
    assert_eq!(certificate["command"], format!("farhaul lab certify --cc {law} --seed 12 --quick"));
    let baselines = certificate["baselines"].as_array().expect("a list");
    let beside: Vec<_> = baselines.iter().filter_map(|one| one["law"].as_str()).collect();
    assert_eq!(beside.len(), 3, "{beside:?}");
    assert!(["bbr", "cubic", "copa"].iter().all(|law| beside.contains(law)), "{beside:?}");
    for key in ["summary", "source"] {
        assert!(certificate[key].as_str().is_some_and(|text| !text.is_empty()), "{certificate}");
    }
    let items = certificate["items"].as_array().expect("a list");
    assert!(items.len() > 10, "{certificate}");
    let points = |value: &Value| value.as_f64().is_some_and(|p| (0.0..=100.0).contains(&p));
    assert!(certificate["overall"].is_null(), "the reduced battery gives none: {certificate}");
    for item in items {
        assert!(points(&item["score"]), "{item}");
        assert!(item["measured"].is_number() || item["measured"].is_null(), "{item}");
        assert!(item["best"].is_number() && item["worst"].is_number(), "{item}");
        assert!(["name", "what", "unit"].iter().all(|key| item[key].is_string()), "{item}");
    }
    let stem = "here/certificate-udt-window_8-noisy_true";
    let files = ["json", "csv", "svg", "png"].map(|ending| format!("{stem}.{ending}"));
    let written = certified["files"].as_array().expect("a list");
    assert_eq!(json!(written[..4]), json!(files));
    let read = || files.each_ref().map(|file| fs::read(folder.path().join(file)).expect("a file"));
    let before = read();
    assert!(before.iter().all(|data| !data.is_empty()));
    // The page for people, of this law alone; and the same bytes again.
    let page = lab(folder.path(), &args);
    assert_eq!(page.code, Some(0), "{}", page.errors);
    assert!(page.out.starts_with(&format!("{law}: ")) && page.out.contains('█'), "{}", page.out);
    for item in items {
        assert!(page.out.contains(item["what"].as_str().expect("text")), "{item}: {}", page.out);
    }
    assert!(before == read(), "not the same bytes");
}

/// What is made of several laws, beside their certificates: of `cubic`, and of `law` before it.
fn check_side_by_side(folder: &Path, certified: &Value, law: &str) {
    let pairs = &certified["pairs"];
    assert_eq!(pairs["laws"], json!([law, "cubic"]));
    let beside = pairs["beside"].as_array().expect("names");
    // Three TCPs, each law but blast, and the first one itself, for it has parameters.
    assert_eq!(beside.len(), 3 + laws(folder).len() - 1 + 1);
    let shares = pairs["lesser_share"].as_array().expect("rows");
    let points = |value: &Value| value.as_f64().is_some_and(|p| (0.0..=100.0).contains(&p));
    for (name, row) in beside.iter().zip(shares) {
        assert!(points(&row[0]), "{name}: {row}");
        assert_eq!(points(&row[1]), name != "itself", "{name}: {row}");
    }
    let csv = fs::read_to_string(folder.join("here/certificates-2.csv")).expect("a table");
    assert!(csv.starts_with(&format!("beside,\"{law}\",cubic\r\n")), "{csv}");
    assert_eq!(csv.lines().count(), 1 + beside.len());
    let files = certified["files"].as_array().expect("files");
    for name in ["certificates.json", "certificates.csv", "certificates.svg", "certificates-2.png"]
    {
        assert!(files.contains(&format!("here/{name}").into()), "{name}: {files:?}");
    }
}

#[test]
fn a_law_that_is_not_there_gets_no_certificate() {
    let folder = tempfile::tempdir().expect("a folder");
    for (law, message) in [
        ("cubik", "no congestion control law is named 'cubik'; did you mean 'cubic'?"),
        ("cubic:d=1", "law 'cubic' has no parameter 'd'"),
    ] {
        let ended = lab(folder.path(), &["certify", "--cc", law]);
        assert_eq!(ended.code, Some(2), "{}", ended.errors);
        assert!(ended.errors.contains(message), "{}", ended.errors);
    }
    for args in [&["certify"][..], &["certify", "--all", "--cc", "udt"]] {
        assert_eq!(lab(folder.path(), args).code, Some(2), "{args:?}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn a_report_has_all_certificates() {
    let folder = stored();
    let report = json(folder.path(), &["report", "--out", ".", "--json"]);
    let outcomes = report["outcomes"].as_array().expect("a list");
    let certificates = outcomes.iter().find(|one| one["id"] == "certificates").expect("them");
    let columns = certificates["tables"][0]["columns"].as_array().expect("a table");
    let names: Vec<&str> = columns.iter().filter_map(|column| column["name"].as_str()).collect();
    assert_eq!(names[1..], laws(folder.path()));
    let page = fs::read_to_string(folder.path().join("report.html")).expect("a page");
    let count = laws(folder.path()).len();
    assert_eq!(page.matches("<td>77 (12.5)</td>").count(), count);
    // One that is missing is made.
    let path = folder.path().join("certificate-blast.json");
    fs::remove_file(&path).expect("it is there");
    json(folder.path(), &["report", "--out", ".", "--json", "--quick"]);
    let made: Value = serde_json::from_slice(&fs::read(&path).expect("a file")).expect("JSON");
    assert!(made["items"].as_array().is_some_and(|items| items.len() > 10), "{made}");
}

#[test]
fn a_result_of_another_version_is_not_taken() {
    for members in [json!({"version": "0.0.1"}), json!({"experiment": "0"})] {
        let folder = stored();
        store(folder.path(), "gu-3-time", &members);
        let ended = lab(folder.path(), &["report", "--out", ".", "--quick"]);
        let said = "gu-3-time: its result is of another version, so it is run again";
        assert!(ended.errors.contains(said), "{}", ended.errors);
        let page = fs::read_to_string(folder.path().join("report.html")).expect("a page");
        assert_eq!(page.matches(">stored</a>").count(), ids(folder.path()).len() - 1);
        assert!(page.contains(&format!("with farhaul {VERSION}</p>")), "{page}");
        let ended = lab(folder.path(), &["report", "--out", ".", "--quick"]);
        assert!(!ended.errors.contains(said), "{}", ended.errors);
    }
}

#[test]
fn files_that_a_result_lacks_are_made_again() {
    let folder = stored();
    let run = ["run", "gu-3-time", "--quick", "--out", "."];
    assert_eq!(lab(folder.path(), &run).code, Some(0));
    let path = |name: &str| folder.path().join(name);
    let read = |name: &str| fs::read(path(name)).expect("a file");
    let names = ["gu-3-time.json", "gu-3-time.svg", "gu-3-time.png", "gu-3-time.csv"];
    let before = names.map(read);
    fs::remove_file(path("gu-3-time.svg")).expect("it was there");
    fs::write(path("gu-3-time.csv"), "").expect("a file");
    let report = json(folder.path(), &["report", "--out", ".", "--quick", "--json"]);
    assert!(names.map(read) == before);
    let files = report["files"].as_array().expect("a list");
    assert!(files.contains(&"./gu-3-time.svg".into()), "{files:?}");
}
