//! Batches over the loopback interface.

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Receives until there are `count` datagrams; panics if they do not come.
fn receive(socket: &Socket, count: usize) -> Vec<Vec<u8>> {
    let (mut inbox, mut poller) = (Inbox::new(), Poller::default());
    poller.watch([socket].into_iter());
    let mut datagrams = Vec::new();
    while datagrams.len() < count {
        assert!(poller.wait(PATIENCE).unwrap(), "{} of {count} datagrams", datagrams.len());
        let messages = socket.receive(&mut inbox).unwrap();
        assert_eq!(inbox.messages().count(), messages);
        for message in inbox.messages() {
            let before = datagrams.len();
            datagrams.extend(message.datagrams().map(<[u8]>::to_vec));
            assert_eq!(datagrams.len() - before, message.count());
        }
    }
    assert_eq!(socket.receive(&mut inbox).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    datagrams
}

/// Datagrams of these sizes; each is full of its number.
fn packets(sizes: &[usize]) -> Vec<Vec<u8>> {
    sizes.iter().enumerate().map(|(index, size)| vec![index as u8; *size]).collect()
}

fn all(packets: &[Vec<u8>]) -> Sent {
    let mut all = Sent::default();
    all.add(packets);
    all
}

#[test]
fn groups_are_of_one_size_with_a_smaller_tail() {
    let first = |sizes: &[usize]| segments(&packets(sizes));
    assert_eq!(first(&[100, 100, 100]), 3);
    assert_eq!(first(&[100, 100, 40, 40]), 3);
    assert_eq!(first(&[100, 200]), 1);
    assert_eq!(first(&[100, 0, 100]), 1);
    assert_eq!(first(&[0, 0]), 1);
    assert_eq!(first(&[16; 100]), SEGMENTS_MAX);
    assert_eq!(first(&[1_472; 100]), 44);
    assert_eq!(first(&[40_000, 40_000]), 1);
}

#[test]
fn batches_arrive_whole_in_order_and_stamped() {
    let (from, to) = (Socket::bind(loopback()).unwrap(), Socket::bind(loopback()).unwrap());
    let mut sizes = vec![1_472; 60];
    sizes.extend([300, 300, 0, 7, 9_000, 9_000, 1]);
    let sent = packets(&sizes);
    assert_eq!(from.send(Some(to.local_addr().unwrap()), &sent), all(&sent));
    assert_eq!(receive(&to, sent.len()), sent);

    from.send(Some(to.local_addr().unwrap()), &packets(&[10]));
    let (mut inbox, mut poller) = (Inbox::new(), Poller::default());
    poller.watch([&to].into_iter());
    assert!(poller.wait(PATIENCE).unwrap() && poller.is_ready(0) && !poller.is_ready(1));
    to.receive(&mut inbox).unwrap();
    let message = inbox.messages().next().unwrap();
    assert_eq!(message.from, from.local_addr().unwrap());
    assert!(message.stamp.is_some());
}

/// Where the kernel has the offload, it is used: fewer messages than datagrams.
#[test]
fn equal_datagrams_travel_together() {
    let (from, to) = (Socket::bind(loopback()).unwrap(), Socket::bind(loopback()).unwrap());
    if to.set_option(libc::SOL_UDP, libc::UDP_GRO, 1).is_err() {
        eprintln!("skipped: this kernel has no UDP_GRO");
        return;
    }
    let sent = packets(&[1_000; 40]);
    assert_eq!(from.send(Some(to.local_addr().unwrap()), &sent), all(&sent));
    let (mut inbox, mut poller) = (Inbox::new(), Poller::default());
    poller.watch([&to].into_iter());
    assert!(poller.wait(PATIENCE).unwrap());
    assert_eq!(to.receive(&mut inbox).unwrap(), 1);
    let message = inbox.messages().next().unwrap();
    assert_eq!((message.count(), message.segment, message.payload.len()), (40, 1_000, 40_000));
}

/// A receiver without offload sees the datagrams, not the super-packet.
#[test]
fn plain_receivers_get_datagrams() {
    let from = Socket::bind(loopback()).unwrap();
    let to = UdpSocket::bind(loopback()).unwrap();
    to.set_read_timeout(Some(PATIENCE)).unwrap();
    let sent = packets(&[1_000, 1_000, 1_000, 500]);
    assert_eq!(from.send(Some(to.local_addr().unwrap()), &sent), all(&sent));
    let mut buffer = [0; 2_000];
    for packet in &sent {
        let (size, _) = to.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..size], packet);
    }
}

#[test]
fn without_segmentation_packets_travel_singly() {
    let (from, to) = (Socket::bind(loopback()).unwrap(), Socket::bind(loopback()).unwrap());
    from.segmentation.set(false);
    let sent = packets(&[100; 40]);
    assert_eq!(from.group(&sent), [1; MESSAGES]);
    assert_eq!(from.send(Some(to.local_addr().unwrap()), &sent), all(&sent));
    assert_eq!(receive(&to, sent.len()), sent);
}

/// The peer's port is closed at first: the ICMP error must not cost later datagrams.
#[test]
fn a_refused_datagram_does_not_stop_the_next() {
    let from = Socket::bind(loopback()).unwrap();
    // An address of its own, where no other test takes the port in between.
    let reserved = UdpSocket::bind((Ipv4Addr::new(127, 77, 1, 1), 0)).unwrap();
    let address = reserved.local_addr().unwrap();
    from.connect(address).unwrap();
    drop(reserved);
    from.send(None, &packets(&[10]));
    let to = Socket::bind(address).unwrap();
    let later = packets(&[20, 20]);
    assert_eq!(from.send(None, &later), all(&later));
    assert_eq!(receive(&to, 2), later);
}

#[test]
fn too_large_datagrams_are_lost_alone() {
    let (from, to) = (Socket::bind(loopback()).unwrap(), Socket::bind(loopback()).unwrap());
    let sent = packets(&[50, 70_000, 60]);
    let taken = from.send(Some(to.local_addr().unwrap()), &sent);
    assert_eq!(taken, Sent { packets: 2, bytes: 110 });
    assert_eq!(receive(&to, 2), [sent[0].clone(), sent[2].clone()]);
}

#[test]
fn version_6_addresses() {
    let Ok(from) = Socket::bind((Ipv6Addr::LOCALHOST, 0).into()) else {
        eprintln!("skipped: this machine has no IPv6 loopback");
        return;
    };
    let to = Socket::bind((Ipv6Addr::LOCALHOST, 0).into()).unwrap();
    from.send(Some(to.local_addr().unwrap()), &packets(&[5]));
    assert_eq!(receive(&to, 1), packets(&[5]));
}
