#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::os::unix::net::UnixStream;
use std::thread;

use rustls::NamedGroup;

use super::*;

/// Both sides of a handshake, each with whom it trusts and its context.
fn shake(
    client: (&Identity, Trust, &[u8]),
    server: (&Identity, Trust, &[u8]),
) -> [Result<Session, HandshakeError>; 2] {
    let (near, far) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            let (identity, trust, context) = server;
            handshake(&far, Role::Server, identity, &trust, context)
        });
        let (identity, trust, context) = client;
        let client = handshake(&near, Role::Client, identity, &trust, context);
        drop(near);
        [client, server.join().unwrap()]
    })
}

fn two() -> (Identity, Identity) {
    (Identity::generate().unwrap(), Identity::generate().unwrap())
}

#[test]
fn both_sides_know_each_other_and_have_the_same_keys() {
    let (client, server) = two();
    let [near, far] = shake(
        (&client, Trust::Only(server.public_key()), b"c"),
        (&server, Trust::Only(client.public_key()), b"c"),
    )
    .map(Result::unwrap);
    assert_eq!((near.peer(), far.peer()), (server.public_key(), client.public_key()));
    assert_eq!((&near.sending, &near.receiving), (&far.receiving, &far.sending));
    assert_ne!(near.sending, near.receiving);
    let (tags, far_tags) = (near.tags(), far.tags());
    assert_eq!((&tags.sending, &tags.receiving), (&far_tags.receiving, &far_tags.sending));
    assert_ne!(tags.sending, tags.receiving);
    assert!(!near.sending.starts_with(&tags.sending[..]), "another secret than the records'");
    assert_eq!(near.cipher, far.cipher);
}

#[test]
fn another_session_has_other_keys() {
    let (client, server) = two();
    let sessions = [b"a", b"b", b"b"].map(|context| {
        let [near, far] = shake(
            (&client, Trust::Only(server.public_key()), context),
            (&server, Trust::Only(client.public_key()), b"b"),
        )
        .map(Result::unwrap);
        (near, far)
    });
    assert_ne!(sessions[0].0.sending, sessions[0].1.receiving, "contexts differ");
    assert_eq!(sessions[1].0.sending, sessions[1].1.receiving);
    assert_ne!(sessions[1].0.sending, sessions[2].0.sending);
    assert_ne!(sessions[0].0.tags().sending, sessions[0].1.tags().receiving, "contexts differ");
    assert_ne!(sessions[1].0.tags().sending, sessions[2].0.tags().sending);
}

#[test]
fn a_server_with_another_key_is_a_stranger() {
    let (client, server) = two();
    let wanted = Identity::generate().unwrap().public_key();
    let [near, far] = shake(
        (&client, Trust::Only(wanted), b""),
        (&server, Trust::Only(client.public_key()), b""),
    );
    let expected = server.public_key();
    assert!(matches!(near, Err(HandshakeError::Stranger(key)) if key == expected), "{near:?}");
    // A client that has not shown its key cannot refuse anything.
    assert!(matches!(far, Err(HandshakeError::Alert(_))), "{far:?}");
}

/// A TLS alert in plain text, access_denied (RFC 8446 §6), framed as a message of a handshake.
const FORGED: [u8; 9] = [0, 7, 0x15, 3, 3, 0, 2, 2, 49];

/// Hands on what the server says, but writes a forged alert before the message of this number.
struct Forging<'a> {
    stream: &'a UnixStream,
    before: usize,
    waiting: Vec<u8>,
}

impl Read for Forging<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.waiting.is_empty() {
            if self.before == 0 {
                self.waiting = FORGED.to_vec();
            } else {
                let mut length = [0; 2];
                self.stream.read_exact(&mut length)?;
                let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
                self.stream.read_exact(&mut message)?;
                self.waiting = [&length[..], &message].concat();
            }
            self.before = self.before.wrapping_sub(1);
        }
        let count = out.len().min(self.waiting.len());
        out[..count].copy_from_slice(&self.waiting[..count]);
        self.waiting.drain(..count);
        Ok(count)
    }
}

impl Write for Forging<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How often the server writes a message in a handshake, that of its consent included.
fn messages_of_the_server() -> usize {
    let (client, server) = two();
    let (of_client, of_server) =
        (Trust::Only(client.public_key()), Trust::Only(server.public_key()));
    let (near, far) = UnixStream::pair().unwrap();
    let never = usize::MAX;
    let mut counting = Forging { stream: &near, before: never, waiting: Vec::new() };
    thread::scope(|scope| {
        scope.spawn(|| handshake(&far, Role::Server, &server, &of_client, b"").unwrap());
        handshake(&mut counting, Role::Client, &client, &of_server, b"").unwrap();
    });
    never - counting.before
}

#[test]
fn a_forged_alert_is_never_the_peers_refusal() {
    let messages = messages_of_the_server();
    assert!(messages >= 2, "a flight and the consent");
    for before in 0..messages {
        let (client, server) = two();
        let (of_client, of_server) =
            (Trust::Only(client.public_key()), Trust::Only(server.public_key()));
        let (near, far) = UnixStream::pair().unwrap();
        let forging = Forging { stream: &near, before, waiting: Vec::new() };
        let error = thread::scope(|scope| {
            scope.spawn(|| drop(handshake(&far, Role::Server, &server, &of_client, b"")));
            let result = handshake(forging, Role::Client, &client, &of_server, b"");
            near.shutdown(std::net::Shutdown::Both).unwrap();
            result.expect_err("no session")
        });
        assert!(
            matches!(error, HandshakeError::Alert(_) | HandshakeError::Protocol(_)),
            "before message {before}: {error:?}"
        );
    }
}

#[test]
fn a_client_that_is_not_known_is_refused() {
    let (client, server) = two();
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = asked.clone();
    let known = Trust::Known(Arc::new(move |key| {
        seen.lock().unwrap().push(*key);
        false
    }));
    let [near, far] =
        shake((&client, Trust::Only(server.public_key()), b""), (&server, known, b""));
    let expected = client.public_key();
    assert!(matches!(near, Err(HandshakeError::Refused)), "{near:?}");
    assert!(matches!(far, Err(HandshakeError::Stranger(key)) if key == expected), "{far:?}");
    assert_eq!(*asked.lock().unwrap(), [expected]);
}

#[test]
fn what_is_no_handshake_is_an_error() {
    let (identity, other) = two();
    let trust = Trust::Only(other.public_key());
    for bytes in [&b""[..], b"\0", b"\xff\xffGET / HTTP/1.1", b"\0\x05hello", &[0; 4096]] {
        for role in [Role::Client, Role::Server] {
            let (near, far) = UnixStream::pair().unwrap();
            (&far).write_all(bytes).unwrap();
            far.shutdown(std::net::Shutdown::Write).unwrap();
            let result = handshake(&near, role, &identity, &trust, b"");
            let error = result.expect_err("no session");
            assert!(
                matches!(error, HandshakeError::Stream(_) | HandshakeError::Protocol(_)),
                "{role:?} {bytes:?}: {error:?}"
            );
        }
    }
}

/// Keeps what is written to it.
struct Tapped<'a>(&'a UnixStream, &'a mut Vec<u8>);

impl Read for Tapped<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl Write for Tapped<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.extend_from_slice(bytes);
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_a_client_once_said_lets_nobody_in_again() {
    let (client, server) = two();
    let (of_client, of_server) =
        (Trust::Only(client.public_key()), Trust::Only(server.public_key()));
    let mut said = Vec::new();
    let (near, far) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| handshake(&far, Role::Server, &server, &of_client, b"").unwrap());
        let tapped = Tapped(&near, &mut said);
        handshake(tapped, Role::Client, &client, &of_server, b"").unwrap();
    });
    let (near, far) = UnixStream::pair().unwrap();
    (&near).write_all(&said).unwrap();
    near.shutdown(std::net::Shutdown::Write).unwrap();
    let error = handshake(&far, Role::Server, &server, &of_client, b"").expect_err("no client");
    assert!(matches!(error, HandshakeError::Protocol(_)), "{error:?}");
}

#[test]
fn only_the_strongest_suites_and_no_earlier_version_are_offered() {
    let suites: Vec<_> = provider().cipher_suites.iter().map(|suite| suite.suite()).collect();
    let ours = [CipherSuite::TLS13_AES_256_GCM_SHA384, CipherSuite::TLS13_CHACHA20_POLY1305_SHA256];
    let others: Vec<_> = suites.iter().filter(|suite| !ours.contains(suite)).collect();
    // Those of TLS 1.2 are none that a connection of 1.3 takes.
    assert!(others.iter().all(|suite| !format!("{suite:?}").starts_with("TLS13")), "{others:?}");
    assert!(ours.iter().all(|suite| suites.contains(suite)), "{suites:?}");
    // What is recorded today is not to be read by a quantum computer one day.
    assert_eq!(provider().kx_groups[0].name(), NamedGroup::X25519MLKEM768);
    let (client, _) = two();
    let trust = Trust::Only(client.public_key());
    let mut hello = Vec::new();
    let mut tls = connection(Role::Client, &client, trust).unwrap();
    tls.write_tls(&mut hello).unwrap();
    // supported_versions (RFC 8446 §4.2.1): one, 1.3.
    assert!(hello.windows(7).any(|bytes| bytes == [0, 43, 0, 3, 2, 3, 4]));
}
