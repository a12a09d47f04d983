#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::os::unix::net::UnixStream;
use std::thread;

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
    assert!(matches!(far, Err(HandshakeError::Refused)), "{far:?}");
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
