//! What a client may have done: an order is checked against what is exported to it.

use std::path::{Component, Path, PathBuf};

use farhaul_mover::frame::AbortReason;
use farhaul_mover::transfer::TransferError;
use farhaul_mover::transfer::pace::LEAST_RATE;
use farhaul_mover::transfer::sink::copy_id;

use super::config::{Access, Keep, ServeConfig};
use crate::cp::job::{Job, OnExisting, ServedOrder, SinkJob, SourceJob, Terms};

/// Patterns of an order, at most.
const MOST_RULES: usize = 512;
/// No session waits longer for a client that has gone, ms.
const LONGEST_OUTAGE: u64 = 60 * 60 * 1000;

/// An order that was granted.
#[derive(Debug)]
pub struct Granted {
    /// The export's name.
    pub export: String,
    /// Its directory.
    pub root: PathBuf,
    /// What has to stay allowed for it to go on.
    pub basis: Basis,
    /// What to do there.
    pub job: Job,
    /// How.
    pub terms: Terms,
    /// What is there is not the client's, but for what it leaves itself.
    pub box_for_new: bool,
    /// The permission bits that the client may give.
    pub mode_mask: u32,
}

/// Why nothing is done.
#[derive(Debug, PartialEq)]
pub struct Refusal {
    /// For the client's exit code.
    pub reason: AbortReason,
    /// For the client's user.
    pub why: String,
    /// The metric's label if that is a limit's affair.
    pub limit: Option<&'static str>,
}

impl Refusal {
    /// It is not allowed.
    pub fn new(why: impl Into<String>) -> Self {
        Refusal { reason: AbortReason::Refused, why: why.into(), limit: None }
    }

    /// It is allowed, and not now: to the client it has failed, for the same may be done later.
    pub fn limit(label: &'static str, why: impl Into<String>) -> Self {
        Refusal { limit: Some(label), ..Refusal::failed(why) }
    }

    /// It is allowed and cannot be done.
    pub fn failed(why: impl Into<String>) -> Self {
        Refusal { reason: AbortReason::Failed, ..Refusal::new(why) }
    }
}

impl Refusal {
    /// What has kept a session in the export with this directory from its beginning.
    pub fn of(error: &TransferError, root: &Path) -> Self {
        let why = without_places(&error.to_string(), root);
        match error.exit_code() {
            3 => Refusal::new(why),
            2 => Refusal { reason: AbortReason::Unfit, ..Refusal::new(why) },
            _ => Refusal::failed(why),
        }
    }
}

/// Where processes find what they have open.
const OPEN: &str = "/proc/self/fd/";

/// `text` with paths from the export on: where that is in the server is not its clients' affair.
fn without_places(text: &str, root: &Path) -> String {
    let mut short = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(OPEN) {
        short += &rest[..at];
        rest = rest[at + OPEN.len()..].trim_start_matches(|c: char| c.is_ascii_digit());
        rest = rest.strip_prefix('/').unwrap_or(rest);
    }
    short += rest;
    let root = farhaul_mover::printable_path(root);
    short.replace(&format!("{root}/"), "").replace(&root, "the export's directory")
}

/// What a session makes use of. When the configuration changes, it goes on only while all of that is
/// allowed.
#[derive(Clone, Debug)]
pub struct Basis {
    export: String,
    root: PathBuf,
    writes: bool,
    /// What is there may be replaced or deleted.
    changes: bool,
    keep: Keep,
    plain: bool,
}

impl Basis {
    /// Whether `config` allows `client` all of it.
    ///
    /// # Errors
    /// For the client's user: what it does not.
    pub fn check(&self, config: &ServeConfig, client: &str) -> Result<(), String> {
        let name = &self.export;
        let Some(export) = config.export_for(client, name) else {
            return Err(format!("the export '{name}' is not there for this client any more"));
        };
        let gone = |what: &str| Err(format!("{what} any more"));
        if export.path != self.root {
            return Err(format!("the export '{name}' has another directory now"));
        }
        let access = export.access;
        if !self.writes && !access.reads() {
            return gone(&format!("the export '{name}' is not for reading"));
        }
        if self.writes && (!access.writes() || (self.changes && !access.reads())) {
            return gone(&format!("the export '{name}' may not be changed so"));
        }
        let Keep { owner, xattrs, set_id } = self.keep;
        let kept = export.keep;
        if (owner && !kept.owner) || (xattrs && !kept.xattrs) || (set_id && !kept.set_id) {
            return gone(&format!("the export '{name}' does not keep what this copy keeps"));
        }
        if self.plain && !config.plain {
            return gone("the server does without encryption for nobody");
        }
        Ok(())
    }
}

#[cfg(test)]
impl Basis {
    /// Of one that reads.
    pub fn reads(export: &str, root: &str) -> Self {
        let (export, root, keep) = (export.into(), root.into(), Keep::default());
        Basis { export, root, writes: false, changes: false, keep, plain: false }
    }
}

/// What `client` gets of what it has asked for over a connection that is `plain` or sealed.
///
/// # Errors
/// What is not allowed.
pub fn admit(
    config: &ServeConfig,
    client: &str,
    plain: bool,
    order: &[u8],
) -> Result<Granted, Refusal> {
    let order: ServedOrder = serde_json::from_slice(order).map_err(|_| {
        Refusal::new(
            "an order that this server does not understand: the versions of \
                                   farhaul on both sides do not go together",
        )
    })?;
    let ServedOrder { export: name, mut job, mut terms } = order;
    let Some(export) = config.export_for(client, &name) else {
        return Err(Refusal::new(format!("there is no export '{name}' for this client")));
    };
    match &mut job {
        Job::Source(_) if !export.access.reads() => {
            return Err(Refusal::new(format!("the export '{name}' is not for reading")));
        }
        Job::Source(job) => source(job)?,
        Job::Sink(_) if !export.access.writes() => {
            return Err(Refusal::new(format!("the export '{name}' is for reading only")));
        }
        Job::Sink(job) => {
            sink(job, export.access, export.keep)?;
            // Only a copy of the same client is the same copy, and the server's medium is not the client's
            // to trust.
            job.copy = copy_id(&[client.as_bytes(), &job.copy]);
            job.trust_partial = false;
        }
    }
    kept(&terms, export.keep)?;
    if terms.rate.is_some_and(|rate| rate < LEAST_RATE) {
        return Err(Refusal::new(format!("the least rate is {LEAST_RATE} bits per second")));
    }
    terms.outage_ms = terms.outage_ms.min(LONGEST_OUTAGE);
    let box_for_new = export.access == Access::Write;
    let (writes, changes, set_id) = match &job {
        Job::Source(_) => (false, false, false),
        Job::Sink(job) => {
            let changes = !box_for_new && (job.delete || job.existing != OnExisting::Keep);
            (true, changes, job.keep_set_id)
        }
    };
    let (owner, xattrs) = (terms.preserve.owner, terms.preserve.xattrs);
    let basis = Basis {
        export: name.clone(),
        root: export.path.clone(),
        writes,
        changes,
        keep: Keep { owner, xattrs, set_id },
        plain,
    };
    let (root, mode_mask) = (export.path.clone(), export.mode_mask);
    Ok(Granted { export: name, root, basis, job, terms, box_for_new, mode_mask })
}

fn source(job: &SourceJob) -> Result<(), Refusal> {
    if job.stream || job.paths.is_empty() {
        return Err(Refusal::new("a server reads nothing but files"));
    }
    if job.rules.len() > MOST_RULES {
        return Err(Refusal::new(format!("at most {MOST_RULES} patterns")));
    }
    job.paths.iter().try_for_each(|path| below(&path.path()))
}

fn sink(job: &mut SinkJob, access: Access, keep: Keep) -> Result<(), Refusal> {
    if job.stream {
        return Err(Refusal::new("a server writes nothing but files"));
    }
    below(&job.path.path())?;
    if job.keep_set_id && !keep.set_id {
        return Err(not_kept("set-user-ID and set-group-ID bits", "--keep-set-id"));
    }
    if access == Access::Write {
        // Whoever may only leave files is told nothing of what is there, and changes none of it.
        let wants = match job.existing {
            _ if job.delete => Some("--delete"),
            OnExisting::Overwrite => Some("--overwrite"),
            OnExisting::Checksum => Some("--checksum"),
            OnExisting::Update | OnExisting::Keep => None,
        };
        if let Some(flag) = wants {
            let why = format!("this export only takes new files: leave {flag} out");
            return Err(Refusal::new(why));
        }
        job.want_digests = false;
    }
    Ok(())
}

fn kept(terms: &Terms, keep: Keep) -> Result<(), Refusal> {
    if terms.preserve.owner && !keep.owner {
        return Err(not_kept("owners", "owner out of --preserve"));
    }
    if terms.preserve.xattrs && !keep.xattrs {
        return Err(not_kept("extended attributes", "xattrs out of --preserve"));
    }
    Ok(())
}

fn not_kept(what: &str, leave: &str) -> Refusal {
    Refusal::new(format!("this export does not keep {what}: leave {leave}"))
}

/// Whether a path stays in the export. That no link leads out is seen where it is opened.
fn below(path: &Path) -> Result<(), Refusal> {
    let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if path.components().all(inside) {
        return Ok(());
    }
    let path = farhaul_mover::printable_path(path);
    Err(Refusal::new(format!("'{path}' leads out of the export: paths are relative, without '..'")))
}

#[cfg(test)]
mod tests {
    use farhaul_secure::Identity;
    use serde_json::{Value, json};

    use super::super::config::{Admitted, Export};
    use super::*;
    use crate::cp::job::Bytes;

    fn config() -> ServeConfig {
        let key = Identity::generate().expect("a key").public_key();
        let text = format!(
            "identity = \"i\"\n[client.a]\nkey = \"{key}\"\n\
             [export.in]\npath = \"/in\"\naccess = \"write\"\nclients = \"*\"\n\
             [export.out]\npath = \"/out\"\naccess = \"read\"\nclients = \"a\"\n\
             [export.all]\npath = \"/all\"\naccess = \"read-write\"\nclients = \"*\"\n\
             keep = \"owner,set-id\"\n"
        );
        ServeConfig::parse(Path::new("s"), &text, |_| Ok(Vec::new())).expect("a configuration")
    }

    fn terms() -> Value {
        json!({
            "verify": true, "dry_run": false, "outage_ms": u64::MAX, "lanes": 2,
            "fixed_lanes": false, "cc": "bbr", "mss": 1500, "receive_memory": null,
            "send_memory": null, "rate": null, "plain": false,
            "preserve": {"mode": true, "times": true, "owner": false, "xattrs": false,
                         "hard_links": false, "sparse": true},
        })
    }

    fn reads(export: &str, path: &[u8]) -> Value {
        let source = SourceJob {
            paths: vec![Bytes::from(Path::new(std::str::from_utf8(path).expect("text")))],
            stream: false,
            rules: Vec::new(),
            count: true,
            one_file: false,
        };
        json!({"export": export, "job": {"source": source}, "terms": terms()})
    }

    fn writes(export: &str, path: &str) -> Value {
        let sink = SinkJob {
            path: Bytes::from(Path::new(path)),
            stream: false,
            directory: false,
            existing: OnExisting::Update,
            delete: false,
            max_delete: None,
            allow_empty: false,
            spared: Vec::new(),
            keep_set_id: false,
            want_digests: true,
            trust_partial: false,
            copy: [7; 16],
        };
        json!({"export": export, "job": {"sink": sink}, "terms": terms()})
    }

    fn ask(order: &Value) -> Result<Granted, Refusal> {
        admit(&config(), "a", false, order.to_string().as_bytes())
    }

    fn refused(order: &Value) -> String {
        let refusal = ask(order).expect_err("it is not allowed");
        assert_eq!(refusal.reason, AbortReason::Refused);
        refusal.why
    }

    fn with(mut order: Value, place: &str, value: Value) -> Value {
        *order.pointer_mut(place).expect(place) = value;
        order
    }

    #[test]
    fn rates_that_no_session_keeps_to_are_refused() {
        let order = |rate: u64| with(reads("out", b"a"), "/terms/rate", json!(rate));
        assert_eq!(ask(&order(LEAST_RATE)).expect("granted").terms.rate, Some(LEAST_RATE));
        assert!(refused(&order(LEAST_RATE - 1)).contains("the least rate"));
    }

    #[test]
    fn exports_are_read_and_written_as_they_allow() {
        let granted = ask(&reads("out", b"a/b")).expect("it is for reading");
        assert_eq!((granted.root.to_str(), granted.export.as_str()), (Some("/out"), "out"));
        assert_eq!(granted.terms.outage_ms, LONGEST_OUTAGE);
        assert!(ask(&reads("all", b"")).is_ok() && ask(&writes("all", "")).is_ok());
        assert_eq!(refused(&writes("out", "a")), "the export 'out' is for reading only");
        assert_eq!(refused(&reads("in", b"a")), "the export 'in' is not for reading");
        assert_eq!(refused(&reads("none", b"a")), "there is no export 'none' for this client");
        let others = admit(&config(), "b", false, reads("out", b"a").to_string().as_bytes());
        assert_eq!(others.expect_err("not its").why, "there is no export 'out' for this client");
        assert!(admit(&config(), "a", false, b"{}").is_err());
    }

    #[test]
    fn no_path_leads_out() {
        for path in ["/etc/passwd", "..", "../x", "a/../../x", "/"] {
            assert!(refused(&reads("out", path.as_bytes())).contains("leads out"), "{path}");
            assert!(refused(&writes("all", path)).contains("leads out"), "{path}");
        }
        for path in ["", ".", "a/", "./a", "a..b/...", "~/x"] {
            assert!(ask(&reads("out", path.as_bytes())).is_ok(), "{path}");
        }
    }

    #[test]
    fn who_leaves_files_changes_none_and_learns_nothing() {
        let Ok(Granted { job: Job::Sink(job), .. }) = ask(&writes("in", "a")) else {
            panic!("it is for writing")
        };
        assert_eq!((job.existing, job.want_digests), (OnExisting::Update, false));
        let order = || writes("in", "a");
        for (place, value) in [
            ("/job/sink/delete", json!(true)),
            ("/job/sink/existing", json!("overwrite")),
            ("/job/sink/existing", json!("checksum")),
        ] {
            assert!(refused(&with(order(), place, value)).contains("only takes new files"));
        }
    }

    #[test]
    fn clients_are_not_told_where_exports_are() {
        let root = Path::new("/srv/in");
        for (told, short) in [
            ("\"/proc/self/fd/14/none\": No such file", "\"none\": No such file"),
            ("/proc/self/fd/3 and /proc/self/fd/4/a/b", " and a/b"),
            ("/srv/in/a: Permission denied", "a: Permission denied"),
            ("/srv/in: Not a directory", "the export's directory: Not a directory"),
            ("a/b: No such file", "a/b: No such file"),
        ] {
            assert_eq!(without_places(told, root), short);
        }
    }

    #[test]
    fn what_goes_on_must_stay_allowed() {
        let all = with(writes("all", "a"), "/terms/preserve/owner", json!(true));
        let basis = |order: &Value| ask(order).expect("it is allowed").basis;
        let (writes, reads, leaves) =
            (basis(&all), basis(&reads("out", b"a")), basis(&writes("in", "a")));
        let config = config();
        for basis in [&writes, &reads, &leaves] {
            assert_eq!(basis.check(&config, "a"), Ok(()));
        }
        let changed = |change: &dyn Fn(&mut ServeConfig)| {
            let mut config = config.clone();
            change(&mut config);
            config
        };
        fn export<'a>(config: &'a mut ServeConfig, name: &str) -> &'a mut Export {
            config.exports.get_mut(name).expect("it is there")
        }
        let told = |basis: &Basis, change: &dyn Fn(&mut ServeConfig)| {
            basis.check(&changed(change), "a").expect_err("it is not allowed any more")
        };
        assert!(told(&reads, &|c| drop(c.exports.remove("out"))).contains("is not there"));
        let moved = told(&reads, &|c| export(c, "out").path = "/other".into());
        assert_eq!(moved, "the export 'out' has another directory now");
        let nobody = || Admitted::Named(vec!["b".into()]);
        assert!(told(&reads, &|c| export(c, "out").clients = nobody()).contains("is not there"));
        let told_access = |basis, name: &'static str, access| {
            told(basis, &move |c: &mut ServeConfig| export(c, name).access = access)
        };
        assert!(told_access(&reads, "out", Access::Write).contains("not for reading"));
        assert!(told_access(&writes, "all", Access::Read).contains("may not be changed"));
        // Who replaces files may not where only new ones may be left.
        assert!(told_access(&writes, "all", Access::Write).contains("may not be changed"));
        assert!(told(&writes, &|c| export(c, "all").keep = Keep::default()).contains("keep"));
        let more = changed(&|c| export(c, "in").access = Access::ReadWrite);
        assert_eq!(leaves.check(&more, "a"), Ok(()));
        let order = super::tests::reads("out", b"a").to_string();
        let plain = admit(&config, "a", true, order.as_bytes()).expect("it is allowed").basis;
        assert!(plain.check(&config, "a").is_err_and(|why| why.contains("encryption")));
    }

    #[test]
    fn what_opens_more_is_kept_only_where_it_is_allowed() {
        let owner = "/terms/preserve/owner";
        assert!(ask(&with(writes("all", "a"), owner, json!(true))).is_ok());
        assert!(refused(&with(writes("in", "a"), owner, json!(true))).contains("owners"));
        let xattrs = with(writes("all", "a"), "/terms/preserve/xattrs", json!(true));
        assert!(refused(&xattrs).contains("extended attributes"));
        let set_id = |export| with(writes(export, "a"), "/job/sink/keep_set_id", json!(true));
        assert!(ask(&set_id("all")).is_ok());
        assert!(refused(&set_id("in")).contains("--keep-set-id"));
        let stream = with(reads("out", b"a"), "/job/source/stream", json!(true));
        assert!(refused(&stream).contains("nothing but files"));
    }
}
