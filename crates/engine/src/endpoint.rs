//! All connections of one UDP port: demultiplexing, timers and turns.

mod listener;

use core::cmp::Reverse;
use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use bytes::Bytes;
use farhaul_base::Time;
use farhaul_control::{Groups, Spec};
use farhaul_wire::{Control, HEADER_LEN, Packet, Seq, dest};

use self::listener::Listener;
use crate::config::{Config, ConfigError};
use crate::connection::{Connection, Events};
use crate::cookie::{COOKIE_LIFE, CookieJar};
use crate::handshake::{ConnectError, Connecting, Progress, STAMP};
use crate::secrets::Secrets;
use crate::tags::Tags;
use crate::transmit::Transmit;

/// Connections that are over are remembered so long, to answer a peer that has not heard.
const MEMORY: Duration = Duration::from_secs(5);
const MAX_REMEMBERED: usize = 1024;
/// Requests are remembered until their cookie is void, so many.
const MAX_SPENT: usize = 1 << 14;
/// How often the connections that receive are counted.
const SHARE_EVERY: Duration = Duration::from_millis(50);

/// Names a connection of an endpoint: its socket ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u32);

impl ConnectionId {
    /// The socket ID, as on the wire.
    pub fn value(self) -> u32 {
        self.0
    }
}

/// Packets that no connection took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointCounters {
    /// Too short, or with an impossible field.
    pub malformed: u64,
    /// To a socket ID that does not exist.
    pub unknown_id: u64,
    /// To a connection, from another address than its peer's.
    pub wrong_address: u64,
    /// Handshakes with a cookie that is not ours.
    pub bad_cookie: u64,
    /// Handshakes that were refused, or not answered because the backlog is full.
    pub refused: u64,
}

#[derive(Debug)]
enum Entry {
    Connecting(Box<Connecting>),
    Open(Box<Connection>),
    /// Set-up failed; the application has not been told yet.
    Failed(ConnectError),
}

/// A connection and what the endpoint keeps of it.
#[derive(Debug)]
struct Socket {
    entry: Entry,
    /// The application is done with it: it goes when it is over.
    released: bool,
    /// In the queue of those that may have something to send.
    queued: bool,
    /// The earliest of its entries in the heap of timers.
    timer: Time,
    /// In the queue of those with events.
    has_events: bool,
    /// Whose request it was, if it came through the listener.
    client: Option<Client>,
}

impl Socket {
    /// The connection, if it is set up.
    fn open(&self) -> Option<&Connection> {
        match &self.entry {
            Entry::Open(connection) => Some(connection),
            Entry::Connecting(_) | Entry::Failed(_) => None,
        }
    }

    fn open_mut(&mut self) -> Option<&mut Connection> {
        match &mut self.entry {
            Entry::Open(connection) => Some(connection),
            Entry::Connecting(_) | Entry::Failed(_) => None,
        }
    }
}

/// What the repeated requests of one client are known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Client {
    id: u32,
    isn: u32,
    addr: SocketAddr,
}

impl Client {
    /// Whether a request that is the same but for its address, or this one, is in `all`.
    fn has_like<V>(&self, all: &BTreeMap<Client, V>) -> bool {
        let first = Client { addr: (Ipv4Addr::UNSPECIFIED, 0).into(), ..*self };
        let like = all.range(first..).next();
        like.is_some_and(|(like, _)| (like.id, like.isn) == (self.id, self.isn))
    }
}

/// A connection that is over.
#[derive(Debug)]
struct Remembered {
    peer: SocketAddr,
    peer_id: u32,
    /// What the peer is told if it has not heard of the end.
    shutdown: Control<'static>,
    tags: Tags,
}

/// The connections of one UDP port.
#[derive(Debug)]
pub struct Endpoint {
    secrets: Secrets,
    cookies: CookieJar,
    listener: Option<Listener>,
    sockets: BTreeMap<u32, Socket>,
    /// Connections that came through the listener, those that are gone included.
    clients: BTreeMap<Client, u32>,
    /// Rendezvous being set up, by the peer's address.
    callers: BTreeMap<SocketAddr, u32>,
    remembered: BTreeMap<u32, Remembered>,
    forget: VecDeque<(Time, u32)>,
    /// Clients of connections that are gone, and when their cookies are void: an old copy of a
    /// request must not open another connection.
    spent: VecDeque<(Time, Client)>,
    /// Packets to those without a connection.
    replies: VecDeque<(SocketAddr, Vec<u8>)>,
    ready: VecDeque<u32>,
    timers: BinaryHeap<Reverse<(Time, u32)>>,
    events: VecDeque<u32>,
    /// When those that receive were last counted.
    shared_at: Time,
    shortest_rtt: Option<Duration>,
    /// What laws of its connections share.
    groups: Groups,
    counters: EndpointCounters,
}

impl Endpoint {
    /// `seed`: secret and unpredictable where strangers can reach the port, for cookies, socket IDs
    /// and sequence numbers come from it; fixed where a run is to be repeated.
    pub fn new(now: Time, seed: u64) -> Self {
        let mut secrets = Secrets::new(seed);
        let key = [secrets.next_u64(), secrets.next_u64()];
        Endpoint {
            secrets,
            cookies: CookieJar::new(now, key),
            listener: None,
            sockets: BTreeMap::new(),
            clients: BTreeMap::new(),
            callers: BTreeMap::new(),
            remembered: BTreeMap::new(),
            forget: VecDeque::new(),
            spent: VecDeque::new(),
            replies: VecDeque::new(),
            ready: VecDeque::new(),
            timers: BinaryHeap::new(),
            events: VecDeque::new(),
            shared_at: now,
            shortest_rtt: None,
            groups: Groups::default(),
            counters: EndpointCounters::default(),
        }
    }

    /// Begins to connect to `peer`. [`Events::connected`] tells when it is done, and
    /// [`Endpoint::take_failure`] if it failed.
    ///
    /// # Errors
    ///
    /// An option is out of range.
    pub fn connect(
        &mut self,
        now: Time,
        peer: SocketAddr,
        config: Config,
    ) -> Result<ConnectionId, ConfigError> {
        config.validate()?;
        let id = self.new_id();
        let isn = config.origins.isn.unwrap_or(Seq::new(self.secrets.next_u31()));
        if config.rendezvous {
            self.callers.insert(peer, id);
        }
        let connecting = Connecting::new(now, id, peer, isn, config);
        self.insert(id, Entry::Connecting(Box::new(connecting)), None);
        self.update_schedule(id);
        Ok(ConnectionId(id))
    }

    /// Why setting up a connection failed; the connection is then gone.
    pub fn take_failure(&mut self, id: ConnectionId) -> Option<ConnectError> {
        match self.sockets.get(&id.0)?.entry {
            Entry::Failed(error) => {
                self.sockets.remove(&id.0);
                Some(error)
            }
            Entry::Connecting(_) | Entry::Open(_) => None,
        }
    }

    /// A connection that is set up.
    pub fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        match &self.sockets.get(&id.0)?.entry {
            Entry::Open(connection) => Some(connection),
            _ => None,
        }
    }

    /// Does something with a connection that is set up, and then what follows from it.
    pub fn update<R>(
        &mut self,
        id: ConnectionId,
        action: impl FnOnce(&mut Connection) -> R,
    ) -> Option<R> {
        let connection = self.open_mut(id.0)?;
        let result = action(connection);
        self.update_schedule(id.0);
        Some(result)
    }

    /// Laws of its connections share with those of other endpoints of the host what `groups` has
    /// them share.
    pub fn share_groups(&mut self, groups: &Groups) {
        self.groups = groups.clone();
    }

    /// Replaces the law of a live connection. Window and period stay what they are until the new
    /// law changes them. Returns whether there is such a connection.
    pub fn set_law(&mut self, now: Time, id: ConnectionId, spec: &Spec) -> bool {
        let seed = self.secrets.next_u64();
        let Some(connection) = self.connection(id) else { return false };
        let peer = connection.peer().ip();
        let law = self.groups.build(spec, peer, seed);
        self.update(id, |connection| connection.set_law(now, law)).is_some()
    }

    /// The application is done with a connection: it is closed, at once or after its linger time,
    /// and then forgotten.
    pub fn release(&mut self, now: Time, id: ConnectionId, abort: bool) {
        let Some(socket) = self.sockets.get_mut(&id.0) else { return };
        socket.released = true;
        match &mut socket.entry {
            Entry::Open(connection) if abort => connection.abort(now),
            Entry::Open(connection) => connection.close(now),
            Entry::Connecting(connecting) => {
                let peer = connecting.peer;
                self.forget_caller(peer, id.0);
                self.sockets.remove(&id.0);
                return;
            }
            Entry::Failed(_) => {
                self.sockets.remove(&id.0);
                return;
            }
        }
        self.update_schedule(id.0);
    }

    /// Connections of any state, those that still close included.
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Whether there are no connections, nor anything to send.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty() && self.replies.is_empty()
    }

    /// Packets that no connection took.
    pub fn counters(&self) -> EndpointCounters {
        self.counters
    }

    // ---- In.

    /// One receive-offload buffer from `from`: datagrams of `segment` bytes each, the last perhaps
    /// shorter. `retain`: `bytes` may be kept by reference, because most of the memory behind it
    /// is these datagrams; otherwise what is kept is copied.
    pub fn handle(
        &mut self,
        now: Time,
        from: SocketAddr,
        bytes: &Bytes,
        segment: usize,
        retain: bool,
    ) {
        self.share_room(now);
        let segment = segment.max(1);
        let mut start = 0;
        while start < bytes.len() {
            let first_end = (start + segment).min(bytes.len());
            let Some(id) = dest(&bytes[start..first_end]) else {
                self.counters.malformed += 1;
                start = first_end;
                continue;
            };
            // Datagrams for one connection are handled together.
            let mut end = first_end;
            while end < bytes.len() && dest(&bytes[end..bytes.len().min(end + segment)]) == Some(id)
            {
                end = (end + segment).min(bytes.len());
            }
            if id == 0 {
                for at in (start..end).step_by(segment) {
                    self.handle_unaddressed(now, from, &bytes[at..end.min(at + segment)]);
                }
            } else {
                self.handle_for(now, from, id, bytes, start..end, segment, retain);
            }
            start = end;
        }
    }

    /// A datagram whose payload lies apart from its header, and is kept by reference: as
    /// [`Endpoint::handle`] for those that carry packets in memory.
    pub fn handle_packet(
        &mut self,
        now: Time,
        from: SocketAddr,
        header: &[u8; HEADER_LEN],
        payload: &Bytes,
    ) {
        self.share_room(now);
        if let Ok(Packet::Data(data, _)) = Packet::parse(header)
            && let Some(connection) = self.open_mut(data.dest)
            && connection.peer() == from
            && !connection.is_over()
        {
            connection.handle_data(now, &data, payload);
            self.update_schedule(data.dest);
        } else {
            let whole = Bytes::from([header, &payload[..]].concat());
            self.handle(now, from, &whole, whole.len(), false);
        }
    }

    /// The host of `remote` says that no socket has the port that a datagram was sent to (ICMP port
    /// unreachable); `quoted`: the beginning of that datagram, as far as it is known. During set-up some
    /// of these in half a second are the end, but for a rendezvous. A connection that stands asks its peer
    /// for a sign of life, and if neither that nor anything else comes for three seconds while the host
    /// goes on to say so, it ends like one whose peer is silent. What does not quote this side's own
    /// packets is ignored: others can make such messages up.
    pub fn on_unreachable(&mut self, now: Time, remote: SocketAddr, quoted: &[u8]) {
        let setting_up = self.sockets.iter().filter_map(|(id, socket)| match &socket.entry {
            Entry::Connecting(connecting) if connecting.peer == remote => Some(*id),
            _ => None,
        });
        for id in setting_up.collect::<Vec<_>>() {
            let Some(socket) = self.sockets.get_mut(&id) else { continue };
            if let Entry::Connecting(connecting) = &mut socket.entry {
                let progress = connecting.on_unreachable(now, quoted);
                self.make_progress(now, id, progress);
                self.update_schedule(id);
            }
        }
        let Some(addressee) = dest(quoted).filter(|id| *id != 0) else { return };
        let of_peer = self.sockets.iter_mut().filter_map(|(id, socket)| {
            let connection = socket.open_mut()?;
            let own = connection.peer() == remote && connection.agreement().peer_id == addressee;
            own.then(|| connection.on_unreachable(now)).map(|()| *id)
        });
        for id in of_peer.collect::<Vec<_>>() {
            self.update_schedule(id);
        }
    }

    /// What the host can take at once is for all connections that receive, which are counted now and
    /// then. With that goes the shortest round trip.
    fn share_room(&mut self, now: Time) {
        if now - self.shared_at < SHARE_EVERY {
            return;
        }
        self.shared_at = now;
        let open = self.sockets.values_mut().filter_map(Socket::open_mut);
        let shares = open.map(|connection| u32::from(connection.has_received())).sum();
        self.shortest_rtt = None;
        for connection in self.sockets.values_mut().filter_map(Socket::open_mut) {
            connection.set_room_shares(shares);
            let rtt = connection.shortest_rtt();
            self.shortest_rtt = self.shortest_rtt.into_iter().chain(rtt).min();
        }
    }

    /// The shortest round trip of its connections, as it was some time within the last tenth of a second; none if
    /// that is not known.
    pub fn shortest_rtt(&self) -> Option<Duration> {
        self.shortest_rtt
    }

    #[expect(clippy::too_many_arguments, reason = "a slice of a batch needs all of them")]
    fn handle_for(
        &mut self,
        now: Time,
        from: SocketAddr,
        id: u32,
        bytes: &Bytes,
        range: core::ops::Range<usize>,
        segment: usize,
        retain: bool,
    ) {
        if !self.sockets.contains_key(&id) {
            let datagram = &bytes[range.start..range.end.min(range.start + segment)];
            match self.keep_promise(now, from, id, datagram) {
                Some(true) => {}
                Some(false) => return,
                None => return self.handle_late(now, from, id, datagram),
            }
        }
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        match &mut socket.entry {
            Entry::Open(connection) => {
                if connection.peer() != from {
                    self.counters.wrong_address += range.len().div_ceil(segment) as u64;
                    return;
                }
                if !connection.handle(now, bytes, range, segment, retain) {
                    // Not even a turn: when a connection sends is not for others to say.
                    return;
                }
            }
            Entry::Connecting(connecting) => {
                if connecting.peer != from {
                    self.counters.wrong_address += range.len().div_ceil(segment) as u64;
                    return;
                }
                let datagram = &bytes[range.start..range.end.min(range.start + segment)];
                let progress = match Packet::parse(datagram) {
                    Ok(Packet::Control(c)) => match &c.body {
                        Control::Handshake(handshake) => {
                            connecting.on_handshake(now, handshake, c.timestamp)
                        }
                        _ => connecting.on_other(),
                    },
                    Ok(Packet::Data(..)) => connecting.on_other(),
                    Err(_) => {
                        self.counters.malformed += 1;
                        Progress::None
                    }
                };
                let connected = matches!(progress, Progress::Connected(_));
                self.make_progress(now, id, progress);
                if connected && let Some(connection) = self.open_mut(id) {
                    // What came with the news is the connection's first input; a handshake among
                    // it is not answered twice.
                    connection.handle(now, bytes, range, segment, retain);
                }
            }
            Entry::Failed(_) => {}
        }
        self.update_schedule(id);
    }

    fn make_progress(&mut self, now: Time, id: u32, progress: Progress) {
        let seed = self.secrets.next_u64();
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let Entry::Connecting(connecting) = &socket.entry else { return };
        let peer = connecting.peer;
        match progress {
            Progress::None => return,
            Progress::Connected(agreement) => {
                let config = connecting.config.clone();
                let law = self.groups.build(&config.law, peer.ip(), seed);
                let connection = Connection::new(now, id, peer, agreement, config, law);
                socket.entry = Entry::Open(Box::new(connection));
            }
            Progress::Failed(error) => {
                socket.entry = Entry::Failed(error);
                self.note_events(id);
            }
        }
        self.forget_caller(peer, id);
    }

    /// A rendezvous is no longer being set up.
    fn forget_caller(&mut self, peer: SocketAddr, id: u32) {
        if self.callers.get(&peer) == Some(&id) {
            self.callers.remove(&peer);
        }
    }

    // ---- Time.

    /// When [`Endpoint::handle_timeout`] is next to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// The time-out, if nothing but the pacing of packets that may leave ends then: what arrives before is
    /// no reason to send sooner.
    pub fn paced_until(&self) -> Option<Time> {
        let &Reverse((at, id)) = self.timers.peek()?;
        let paced = |connection: &Connection| connection.next_send() == Some(at);
        self.sockets.get(&id)?.open().is_some_and(paced).then_some(at)
    }

    /// Lets everything happen that is due.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(&Reverse((at, id))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            let Some(socket) = self.sockets.get_mut(&id) else { continue };
            if socket.timer != at {
                continue;
            }
            socket.timer = Time::MAX;
            match &mut socket.entry {
                Entry::Open(connection) => connection.handle_timeout(now),
                Entry::Connecting(connecting) if connecting.timed_out(now) => {
                    self.make_progress(now, id, Progress::Failed(ConnectError::TimedOut));
                }
                _ => {}
            }
            self.update_schedule(id);
        }
        self.forget_old(now);
    }

    fn forget_old(&mut self, now: Time) {
        while let Some(&(until, id)) = self.forget.front() {
            if until > now {
                break;
            }
            self.forget.pop_front();
            self.remembered.remove(&id);
        }
        while let Some(&(until, client)) = self.spent.front() {
            if until > now && self.spent.len() <= MAX_SPENT {
                break;
            }
            self.spent.pop_front();
            self.clients.remove(&client);
        }
        self.forget_promises(now);
    }

    /// After anything that may have changed a connection: it gets a turn to send, which ends with
    /// its timer set ([`Endpoint::set_timer`]), and its events are noted.
    fn update_schedule(&mut self, id: u32) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        if !socket.queued {
            socket.queued = true;
            self.ready.push_back(id);
        }
        let events = match &socket.entry {
            Entry::Open(connection) => connection.has_events(),
            Entry::Connecting(_) => false,
            Entry::Failed(_) => true,
        };
        if events {
            self.note_events(id);
        }
    }

    /// After a turn in which there was nothing to send: what is the connection waiting for?
    fn set_timer(&mut self, now: Time, id: u32) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let timeout = match &socket.entry {
            Entry::Open(connection) => connection.timeout(),
            Entry::Connecting(connecting) => Some(connecting.timeout()),
            Entry::Failed(_) => None,
        };
        // Never this instant again, whatever a timer says: a driver must not spin.
        let timeout = timeout.map(|at| at.max(now.plus_nanos(1)));
        if let Some(at) = timeout.filter(|at| *at < socket.timer) {
            socket.timer = at;
            self.timers.push(Reverse((at, id)));
        }
    }

    fn note_events(&mut self, id: u32) {
        if let Some(socket) = self.sockets.get_mut(&id)
            && !core::mem::replace(&mut socket.has_events, true)
        {
            self.events.push_back(id);
        }
    }

    // ---- Out.

    /// The next connection to which something has happened, and what.
    pub fn poll_event(&mut self) -> Option<(ConnectionId, Events)> {
        while let Some(id) = self.events.pop_front() {
            let Some(socket) = self.sockets.get_mut(&id) else { continue };
            socket.has_events = false;
            let events = match &mut socket.entry {
                Entry::Open(connection) => connection.take_events(),
                Entry::Failed(_) => Events { connected: true, closed: true, ..Events::default() },
                Entry::Connecting(_) => Events::default(),
            };
            if !events.is_empty() && !socket.released {
                return Some((ConnectionId(id), events));
            }
        }
        None
    }

    /// Fills `out` with what is to be sent next; false if there is nothing now. Connections take
    /// turns, a call each.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Transmit) -> bool {
        if let Some((to, packet)) = self.replies.pop_front() {
            out.clear(to);
            out.push_control(&packet);
            return true;
        }
        while let Some(id) = self.ready.pop_front() {
            let Some(socket) = self.sockets.get_mut(&id) else { continue };
            socket.queued = false;
            match &mut socket.entry {
                Entry::Open(connection) => {
                    if connection.poll_transmit(now, out) {
                        self.update_schedule(id);
                        return true;
                    }
                    let over = connection.is_over() && socket.released;
                    self.set_timer(now, id);
                    if over {
                        self.remove(now, id);
                    }
                }
                Entry::Connecting(connecting) => {
                    if let Some((peer_id, handshake)) = connecting.poll(now) {
                        let mut packet = [0; farhaul_wire::HANDSHAKE_LEN];
                        let written =
                            Control::Handshake(handshake).write(STAMP, peer_id, &mut packet);
                        out.clear(connecting.peer);
                        out.push_control(&packet[..written.unwrap_or(0)]);
                        self.update_schedule(id);
                        return true;
                    }
                    self.set_timer(now, id);
                }
                Entry::Failed(_) => {}
            }
        }
        false
    }

    fn remove(&mut self, now: Time, id: u32) {
        let Some(socket) = self.sockets.remove(&id) else { return };
        let Entry::Open(mut connection) = socket.entry else { return };
        if self.remembered.len() < MAX_REMEMBERED {
            let (peer, peer_id) = (connection.peer(), connection.agreement().peer_id);
            let shutdown = connection.shutdown();
            let tags = connection.take_tags();
            self.remembered.insert(id, Remembered { peer, peer_id, shutdown, tags });
            self.forget.push_back((now + MEMORY, id));
        }
        if let Some(client) = socket.client {
            self.spent.push_back((now + COOKIE_LIFE, client));
            self.forget_old(now);
        }
    }

    fn insert(&mut self, id: u32, entry: Entry, client: Option<Client>) {
        let socket = Socket {
            entry,
            released: false,
            queued: false,
            timer: Time::MAX,
            has_events: false,
            client,
        };
        self.sockets.insert(id, socket);
    }

    fn open_mut(&mut self, id: u32) -> Option<&mut Connection> {
        self.sockets.get_mut(&id)?.open_mut()
    }

    /// A socket ID that nobody can guess: positive, 31 bits, not in use.
    fn new_id(&mut self) -> u32 {
        loop {
            let id = self.secrets.next_u31();
            let in_use = self.sockets.contains_key(&id)
                || self.remembered.contains_key(&id)
                || self.is_promised(id);
            if id != 0 && !in_use {
                return id;
            }
        }
    }
}
