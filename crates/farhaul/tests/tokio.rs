//! The asynchronous face, on real sockets.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use farhaul::tokio::{Connection, Listener};
use farhaul::{Bytes, MessageOptions, Mode, Options};
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

/// Two ports that listen as well meet each other.
#[tokio::test]
async fn ports_that_listen_meet() {
    let options = Options::new();
    let listeners = [(); 2].map(|()| Listener::bind(any(), &options).unwrap());
    let addrs = [listeners[0].local_addr(), listeners[1].local_addr()];
    let (a, b) = tokio::join!(
        Connection::rendezvous_from(listeners[0].endpoint(), addrs[1], &options),
        Connection::rendezvous_from(listeners[1].endpoint(), addrs[0], &options),
    );
    let (mut a, mut b) = (a.unwrap(), b.unwrap());
    assert_eq!((a.local_addr(), a.peer_addr()), (addrs[0], addrs[1]));
    a.write_all(b"met").await.unwrap();
    let mut got = [0; 3];
    b.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"met");
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

/// Wakers are called without locks held: one may use what it wakes for.
#[tokio::test]
async fn a_waker_may_use_the_connection() {
    struct Uses(farhaul::Connection, std::sync::mpsc::Sender<bool>);
    impl std::task::Wake for Uses {
        fn wake(self: Arc<Self>) {
            let open = self.0.close_reason().is_none();
            self.1.send(open).unwrap();
        }
    }
    let (a, mut b) = pair(&Options::new()).await;
    let (sender, woken) = std::sync::mpsc::channel();
    let waker = Arc::new(Uses(b.as_blocking().clone(), sender)).into();
    let mut buf = [0; 1];
    {
        let mut read = std::pin::pin!(b.read(&mut buf));
        assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    a.send_bytes((&b"x"[..]).into()).await.unwrap();
    assert!(woken.recv_timeout(Duration::from_secs(20)).unwrap());
}

/// A listener on which nothing happens for days is waited for again and again.
#[tokio::test]
async fn calls_given_up_leave_no_wakers() {
    struct Nothing;
    impl std::task::Wake for Nothing {
        fn wake(self: Arc<Self>) {}
    }
    let listener = Listener::bind(any(), &Options::new()).unwrap();
    let (a, _b) = pair(&Options::new().send_memory(64 << 10)).await;
    // Nobody reads: the buffers fill up.
    while tokio::time::timeout(Duration::from_millis(100), a.send_bytes(vec![0; 1 << 20].into()))
        .await
        .is_ok()
    {}
    let mut count = Arc::new(Nothing);
    for _ in 0..3 {
        let waker = std::task::Waker::from(Arc::clone(&count));
        let mut cx = Context::from_waker(&waker);
        assert!(std::pin::pin!(listener.accept()).poll(&mut cx).is_pending());
        assert!(std::pin::pin!(a.send_bytes(vec![0; 9].into())).poll(&mut cx).is_pending());
        assert!(std::pin::pin!(a.wait_acknowledged()).poll(&mut cx).is_pending());
    }
    assert!(Arc::get_mut(&mut count).is_some(), "a waker is still held");
    a.as_blocking().abort();
}

/// What has come can be read, and then the reader learns that it is not all.
#[tokio::test]
async fn breaking_off_is_an_error_of_the_reader() {
    let (mut a, mut b) = pair(&Options::new()).await;
    a.write_all(&[7; 50_000]).await.unwrap();
    a.wait_acknowledged().await.unwrap();
    let mut got = vec![0; 50_000];
    b.read_exact(&mut got).await.unwrap();
    a.as_blocking().abort();
    let error = b.read(&mut got).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let error = b.recv_chunk().await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// Calls that share a connection are all woken.
#[tokio::test]
async fn all_who_wait_are_woken() {
    let (a, mut b) = pair(&Options::new().send_memory(64 << 10)).await;
    let block = Bytes::from(vec![0; 256 << 10]);
    let sending = async {
        let all = tokio::join!(
            a.send_bytes(block.clone()),
            a.send_bytes(block.clone()),
            a.send_bytes(block.clone()),
            a.send_bytes(block.clone()),
        );
        for result in [all.0, all.1, all.2, all.3] {
            result.unwrap();
        }
        a.wait_acknowledged().await.unwrap();
    };
    let reading = async {
        let mut left = 4 * block.len();
        while left > 0 {
            left -= b.recv_chunk().await.unwrap().unwrap().len();
        }
    };
    let both = async { tokio::join!(sending, reading) };
    tokio::time::timeout(Duration::from_secs(20), both).await.unwrap();
}

#[tokio::test]
async fn the_wrong_kind_of_receiving_is_refused_and_does_not_wait() {
    let (mut a, _b) = pair(&Options::new()).await;
    assert_eq!(a.recv_message().await.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    let (mut a, _b) = pair(&Options::new().mode(Mode::Message)).await;
    assert_eq!(a.recv_chunk().await.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    assert_eq!(a.read(&mut [0]).await.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
}
