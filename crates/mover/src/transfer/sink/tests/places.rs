//! Where entries arrive.

use super::*;

fn single(path: &Path, directory: bool) -> SinkOptions {
    SinkOptions::new(SinkTarget::Path { path: path.into(), directory })
}

#[test]
fn a_single_file_gets_the_name_that_the_target_has() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new");
    for data in [&b"one"[..], b"two+"] {
        let script = |source: &mut Script<'_>| {
            source.small("file", data);
            source.end();
        };
        run(single(&path, false), script).1.unwrap();
        assert_eq!(fs::read(&path).unwrap(), data);
    }
    assert_eq!(names(dir.path()), ["new"]);
}

#[test]
fn a_directory_arrives_below_the_target_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new");
    for _ in 0..2 {
        let script = |source: &mut Script<'_>| {
            source.directory("src");
            source.leave();
            source.end();
        };
        run(single(&path, false), script).1.unwrap();
        assert_eq!(names(dir.path()), ["new", "new/src"]);
    }
}

#[test]
fn a_second_entry_needs_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new");
    run(single(&path, false), |source| {
        source.small("one", b"1");
        let error =
            source.try_entry(b"two", 0o644, What::File { size: 1, sparse: false, origin: ORIGIN });
        assert!(error.unwrap_err().to_string().contains("several entries"));
    })
    .1
    .unwrap();
}

#[test]
fn a_directory_cannot_take_the_place_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "mine").unwrap();
    run(single(&path, false), |source| {
        let error = source.try_entry(b"src", 0o755, What::Directory).unwrap_err();
        assert!(error.to_string().contains("no directory"), "{error}");
    })
    .1
    .unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"mine");
}

#[test]
fn what_is_served_is_not_left() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("served");
    fs::create_dir(&root).unwrap();
    let target = SinkTarget::Below { root: root.clone(), path: "sub".into(), directory: true };
    run(SinkOptions::new(target), |source| {
        source.small("file", b"1");
        source.end();
    })
    .1
    .unwrap();
    assert_eq!(names(dir.path()), ["served", "served/sub", "served/sub/file"]);
    let target = SinkTarget::Below { root, path: "../out".into(), directory: true };
    let error = Sink::new(SinkOptions::new(target), Box::new(drop), Arc::default(), &|_| {});
    assert!(error.unwrap_err().to_string().contains("leads out"));
}

#[test]
fn nothing_at_all_is_well() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new");
    run(single(&path, false), |source| source.end()).1.unwrap();
    assert!(names(dir.path()).is_empty());
}
