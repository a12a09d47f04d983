//! The asynchronous face, on real sockets.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use farhaul::tokio::{Connection, Listener};
use farhaul::{MessageOptions, Mode, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn any() -> std::net::SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

async fn pair(options: &Options) -> (Connection, Connection) {
    let listener = Listener::bind(any(), options).unwrap();
    let addr = listener.local_addr();
    let (a, b) = tokio::join!(Connection::connect(addr, options), listener.accept());
    (a.unwrap(), b.unwrap())
}

#[tokio::test]
async fn both_directions_at_once() {
    let (a, b) = pair(&Options::new()).await;
    let data: Vec<u8> =
        (0..5_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (mut ar, mut aw) = tokio::io::split(a);
    let (mut br, mut bw) = tokio::io::split(b);
    let (mut got_a, mut got_b) = (vec![0; data.len()], vec![0; data.len()]);
    let results = tokio::join!(
        async { aw.write_all(&data).await },
        async { bw.write_all(&data).await },
        async { ar.read_exact(&mut got_a).await },
        async { br.read_exact(&mut got_b).await },
    );
    results.0.unwrap();
    results.1.unwrap();
    results.2.unwrap();
    results.3.unwrap();
    assert!(got_a == data && got_b == data);
    aw.shutdown().await.unwrap();
    assert_eq!(br.read(&mut [0; 9]).await.unwrap(), 0, "the end of the stream");
}

/// A read, an accept and a connect that are given up in the middle lose nothing.
#[tokio::test]
async fn cancelled_operations_lose_nothing() {
    let listener = Listener::bind(any(), &Options::new()).unwrap();
    let nobody = tokio::time::timeout(Duration::from_millis(5), listener.accept()).await;
    assert!(nobody.is_err());
    let silent = std::net::UdpSocket::bind(any()).unwrap();
    let options = Options::new();
    let attempt = Connection::connect(silent.local_addr().unwrap(), &options);
    assert!(tokio::time::timeout(Duration::from_millis(5), attempt).await.is_err());

    let addr = listener.local_addr();
    let (a, b) = tokio::join!(Connection::connect(addr, &options), listener.accept());
    let (mut a, mut b) = (a.unwrap(), b.unwrap());
    let mut buf = [0; 5];
    assert!(tokio::time::timeout(Duration::from_millis(5), b.read_exact(&mut buf)).await.is_err());
    a.write_all(b"hello world").await.unwrap();
    b.read_exact(&mut buf).await.unwrap();
    assert_eq!(&buf, b"hello");
    assert_eq!(b.recv_chunk().await.unwrap().unwrap(), &b" world"[..]);
    a.wait_acknowledged().await.unwrap();
    a.close().await.unwrap();
    assert!(b.recv_chunk().await.unwrap().is_none());
}

#[tokio::test]
async fn messages() {
    let (a, mut b) = pair(&Options::new().mode(Mode::Message)).await;
    let how = MessageOptions { ttl: None, in_order: true };
    for size in [0, 1, 1456, 1457, 100_000] {
        a.send_message(vec![7; size], how).await.unwrap();
        assert_eq!(b.recv_message().await.unwrap().unwrap(), vec![7; size]);
    }
    a.close().await.unwrap();
    assert!(b.recv_message().await.unwrap().is_none());
}
