//! The sample protocol of the stock library's sendfile and recvfile programs: the length of the
//! name as int32, the name, in two sends; then the size as int64, -1 if there is no such file, and
//! the bytes. Little-endian, as the samples send it on the machines at hand.

mod common;

use std::fs::{self, File};
use std::io::{Read, Write};

use common::pattern;
use common::process::{LIMIT, Process};
use common::stock::announced;
use common::{stock_or_skip, turn};
use farhaul::{Connection, Listener, Options};

const SIZE: usize = 20_000_000;

fn read_i64(from: &mut impl Read) -> i64 {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes).expect("the size");
    i64::from_le_bytes(bytes)
}

/// The name in a request.
fn read_name(from: &mut impl Read) -> String {
    let mut len = [0; 4];
    from.read_exact(&mut len).expect("the length of the name");
    let mut name = vec![0; u32::from_le_bytes(len) as usize];
    from.read_exact(&mut name).expect("the name");
    String::from_utf8(name).expect("a plain name")
}

#[test]
fn pipe_asks_the_stock_file_server() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("data.bin"), pattern::bytes(1, SIZE)).expect("a file");
    for (name, there) in [("data.bin", true), ("other.bin", false)] {
        let args = ["file-server", "0", "--print-port"];
        let server = stock.start_within(&args, LIMIT, Some(folder.path()));
        let addr = announced(&server, "127.0.0.1").to_string();
        let mut farhaul = Process::farhaul(&["pipe", &addr]);
        let (mut input, mut output) = (farhaul.stdin(), farhaul.stdout());
        input.write_all(&(name.len() as u32).to_le_bytes()).expect("the pipe takes it");
        input.write_all(name.as_bytes()).expect("the pipe takes it");
        let size = read_i64(&mut output);
        if there {
            assert_eq!(size, SIZE as i64);
            let mut file = vec![0; SIZE];
            output.read_exact(&mut file).expect("the file");
            assert!(file == pattern::bytes(1, SIZE), "the file came damaged");
        } else {
            assert_eq!(size, -1);
        }
        drop(input);
        farhaul.finish_well();
        assert_eq!(server.finish_well().line("request"), name);
    }
}

#[test]
fn pipe_serves_the_stock_file_client() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let mut farhaul = Process::farhaul(&["pipe", "--listen", "127.0.0.1:0"]);
    let port = farhaul.listening_at().port().to_string();
    let args = ["file-client", "127.0.0.1", &port, "some/name", "copy.bin"];
    let client = stock.start_within(&args, LIMIT, Some(folder.path()));
    let (mut input, mut output) = (farhaul.stdin(), farhaul.stdout());
    assert_eq!(read_name(&mut output), "some/name");
    input.write_all(&(SIZE as i64).to_le_bytes()).expect("the pipe takes it");
    input.write_all(&pattern::bytes(2, SIZE)).expect("the pipe takes it");
    client.finish_well();
    assert_eq!(farhaul.finish_with_open_input().code, Some(0));
    let copy = fs::read(folder.path().join("copy.bin")).expect("the copy");
    assert!(copy == pattern::bytes(2, SIZE), "the copy is damaged");
}

/// The library's own file calls on the other end of the samples' ones.
#[test]
fn file_calls_of_the_library() {
    let stock = stock_or_skip!();
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::write(path("data.bin"), pattern::bytes(3, SIZE)).expect("a file");

    let server =
        stock.start_within(&["file-server", "0", "--print-port"], LIMIT, Some(folder.path()));
    let addr = announced(&server, "127.0.0.1");
    let mut connection = Connection::connect(addr, &Options::new()).expect("a connection");
    connection.write_all(&8u32.to_le_bytes()).expect("a connection takes it");
    connection.write_all(b"data.bin").expect("a connection takes it");
    let size = read_i64(&mut connection) as u64;
    let mut file = File::create(path("received.bin")).expect("a file");
    assert_eq!(connection.recv_file(&mut file, 0, size).expect("the file"), SIZE as u64);
    connection.close().expect("everything was acknowledged");
    server.finish_well();
    assert!(fs::read(path("received.bin")).expect("the file") == pattern::bytes(3, SIZE));

    let listener = Listener::bind("127.0.0.1:0", &Options::new()).expect("a listener");
    let port = listener.local_addr().port().to_string();
    let args = ["file-client", "127.0.0.1", &port, "data.bin", "copy.bin"];
    let client = stock.start_within(&args, LIMIT, Some(folder.path()));
    let mut connection = listener.accept().expect("a client");
    let name = read_name(&mut connection);
    let mut file = File::open(path(&name)).expect("the file it asks for");
    connection.write_all(&(SIZE as i64).to_le_bytes()).expect("a connection takes it");
    let sent = connection.send_file(&mut file, 0, SIZE as u64).expect("the file is sent");
    assert_eq!(sent, SIZE as u64);
    client.finish_well();
    assert_eq!(connection.read(&mut [0]).expect("the end"), 0);
    assert!(fs::read(path("copy.bin")).expect("the copy") == pattern::bytes(3, SIZE));
}
