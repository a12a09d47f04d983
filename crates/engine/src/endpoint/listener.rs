//! Listening, and all that comes from those without a connection.

mod promises;

use core::net::SocketAddr;
use std::collections::VecDeque;

use farhaul_base::Time;
use farhaul_base::newcomers::Tally;
use farhaul_wire::{Control, Handshake, Packet, Request};

use self::promises::{Promise, Promises};
use super::{Client, ConnectionId, Endpoint, Entry, Socket};
use crate::config::{Config, ConfigError};
use crate::connection::Connection;
use crate::handshake::{Agreement, STAMP, own_fields, socket_type};
use crate::tags::{FRONT, OVERHEAD};

/// Answers that wait to be sent to strangers: beyond it they are dropped, as a network would.
const MAX_REPLIES: usize = 256;

#[derive(Debug)]
pub struct Listener {
    pub(super) config: Config,
    pub(super) backlog: usize,
    pub(super) waiting: VecDeque<ConnectionId>,
    /// Connections that wait for their first data, if they are to.
    promises: Option<Promises>,
}

impl Endpoint {
    /// Takes connections from now on, with `config` each; at most `backlog` wait to be accepted.
    /// Those that wait already stay.
    ///
    /// # Errors
    ///
    /// An option is out of range.
    pub fn listen(&mut self, config: Config, backlog: usize) -> Result<(), ConfigError> {
        config.validate()?;
        let waiting = self.listener.take().map(|l| l.waiting).unwrap_or_default();
        let backlog = backlog.max(1);
        self.listener = Some(Listener { config, backlog, waiting, promises: None });
        Ok(())
    }

    /// From now on a connection comes to be only with its first data: until then it is a note of some
    /// hundred bytes. At most `most` such notes are kept, for 10 s each; when there are more, those of the
    /// source that has the most go. For protocols in which the client speaks first.
    pub fn defer_accept(&mut self, most: usize) {
        let seed = self.secrets.next_u64();
        if let Some(listener) = &mut self.listener {
            listener.promises = Some(Promises::new(most, seed));
        }
    }

    /// The connections that came to nothing before their first data, since this was last asked.
    pub fn take_silent(&mut self) -> Tally {
        let promises = self.listener.as_mut().and_then(|listener| listener.promises.as_mut());
        promises.map(Promises::take_given_up).unwrap_or_default()
    }

    /// Takes no more connections; those not accepted are closed.
    pub fn stop_listening(&mut self, now: Time) {
        if let Some(listener) = self.listener.take() {
            for client in listener.promises.iter().flat_map(Promises::clients) {
                self.clients.remove(&client);
            }
            for id in listener.waiting {
                self.release(now, id, true);
            }
        }
    }

    /// The connection that has waited longest to be accepted.
    pub fn accept(&mut self) -> Option<ConnectionId> {
        self.listener.as_mut()?.waiting.pop_front()
    }

    /// Connections that wait to be accepted.
    pub fn acceptable(&self) -> usize {
        self.listener.as_ref().map_or(0, |l| l.waiting.len())
    }

    /// A packet to socket ID 0: for the listener, or for a rendezvous that has not heard its peer.
    pub(super) fn handle_unaddressed(&mut self, now: Time, from: SocketAddr, datagram: &[u8]) {
        let Ok(Packet::Control(control)) = Packet::parse(datagram) else {
            self.counters.malformed += 1;
            return;
        };
        let Control::Handshake(handshake) = control.body else {
            self.counters.unknown_id += 1;
            return;
        };
        if let Some(&id) = self.callers.get(&from)
            && let Some(Socket { entry: Entry::Connecting(caller), .. }) = self.sockets.get_mut(&id)
        {
            let progress = caller.on_handshake(now, &handshake, control.timestamp);
            self.make_progress(now, id, progress);
            self.update_schedule(id);
            return;
        }
        if handshake.request == Request::Hello {
            self.offer_cookie(now, from, &handshake);
        } else {
            self.handle_conclusion(now, from, &handshake, control.timestamp);
        }
    }

    /// A client's first packet: the answer is as long as it and leaves no trace here.
    fn offer_cookie(&mut self, now: Time, from: SocketAddr, hello: &Handshake) {
        if self.listener.is_none() {
            self.counters.unknown_id += 1;
            return;
        }
        let cookie = self.cookies.make(now, from, hello);
        self.reply(from, hello.socket_id, &Handshake { cookie, ..*hello });
    }

    fn handle_conclusion(&mut self, now: Time, from: SocketAddr, request: &Handshake, stamp: u32) {
        if self.listener.is_none() && self.clients.is_empty() {
            self.counters.unknown_id += 1;
            return;
        }
        self.forget_old(now);
        let client = Client { id: request.socket_id, isn: request.isn.value(), addr: from };
        let known = self.clients.get(&client).copied();
        // A connection knows by which invitation it came, whether or not there still is a listener.
        let listener = self.listener.as_ref().map(|listener| &listener.config);
        let own = known.and_then(|id| self.connection(ConnectionId(id)).map(Connection::config));
        let invited = own.or(listener).and_then(|config| config.invitation);
        let invited = invited.is_some_and(|invitation| invitation.covers(request))
            && (known.is_some() || self.has_room_for_invited(&client));
        if !invited && !self.cookies.check(now, from, request) {
            self.counters.bad_cookie += 1;
            return;
        }
        // A client that has not heard the answer is given it again, whether or not there still is a listener.
        if let Some(id) = known {
            if let Some(listener) = &self.listener
                && let Some(promise) = listener.promises.as_ref().and_then(|all| all.get(id))
            {
                let own = own_fields(id, from, promise.agreement.isn, &listener.config);
                let mss = promise.agreement.wire_mss;
                let answer = Handshake { mss, cookie: request.cookie, ..own };
                self.reply(from, request.socket_id, &answer);
                return;
            }
            // It may be over, and this an old copy of the request.
            if let Some(known) = self.connection(ConnectionId(id)).filter(|c| !c.is_over()) {
                let own = own_fields(id, from, known.agreement().isn, known.config());
                let mss = known.agreement().wire_mss;
                let answer = Handshake { mss, cookie: request.cookie, ..own };
                self.reply(from, request.socket_id, &answer);
            }
            return;
        }
        let Some(listener) = &mut self.listener else {
            self.counters.unknown_id += 1;
            return;
        };
        let config = &listener.config;
        let mss = config.wire_mss(from.ip());
        let agreement = Agreement::new(mss, request.isn, request, stamp).filter(|_| {
            request.version == Handshake::VERSION && request.socket_type == socket_type(config.mode)
        });
        let full = listener.promises.is_none() && listener.waiting.len() >= listener.backlog;
        if agreement.is_some() && full {
            // *departs:* stock refuses. The client repeats its request, and by then some of those that
            // wait may have been accepted: a burst of clients is no reason to turn any away.
            self.counters.refused += 1;
            return;
        }
        let Some(agreement) = agreement else {
            // The reason shows in the fields that differ from the request's; a stock client looks
            // at none of them.
            self.counters.refused += 1;
            let refusal = Handshake {
                version: Handshake::VERSION,
                socket_type: socket_type(config.mode),
                request: Request::Rejected,
                ..*request
            };
            self.reply(from, request.socket_id, &refusal);
            return;
        };
        let config = config.clone();
        let id = self.new_id();
        // The client checks that the answer repeats its sequence number, and both directions use it.
        let own = own_fields(id, from, request.isn, &config);
        let answer = Handshake { mss: agreement.wire_mss, cookie: request.cookie, ..own };
        if let Some(promises) = self.listener.as_mut().and_then(|l| l.promises.as_mut()) {
            let evicted = promises.add(now, id, Promise { client, agreement, invited });
            self.clients.insert(client, id);
            self.reply(from, request.socket_id, &answer);
            if let Some(gone) = evicted {
                self.clients.remove(&gone.client);
                // Only a cookie shows that an address is its sender's.
                if !gone.invited {
                    self.shut_out(&gone.client);
                }
            }
            return;
        }
        let seed = self.secrets.next_u64();
        let law = self.groups.build(&config.law, from.ip(), seed);
        let connection = Connection::new(now, id, from, agreement, config, law);
        if let Some(listener) = &mut self.listener {
            listener.waiting.push_back(ConnectionId(id));
        }
        self.clients.insert(client, id);
        self.insert(id, Entry::Open(Box::new(connection)), Some(client));
        self.reply(from, request.socket_id, &answer);
        self.update_schedule(id);
    }

    /// Whether one that comes with an invitation is taken by that alone: not where its like has come from another address, for
    /// then this may be a copy that an attacker sends in the name of others, and not beyond a few that have
    /// shown nothing yet. A client that meets with this asks for a cookie.
    fn has_room_for_invited(&self, client: &Client) -> bool {
        let promises = self.listener.as_ref().and_then(|listener| listener.promises.as_ref());
        promises.is_none_or(Promises::takes_invited) && !client.has_like(&self.clients)
    }

    /// A packet to a connection that waits for its first data. True if it has come to be.
    pub(super) fn keep_promise(
        &mut self,
        now: Time,
        from: SocketAddr,
        id: u32,
        datagram: &[u8],
    ) -> Option<bool> {
        let listener = self.listener.as_mut()?;
        let promises = listener.promises.as_mut()?;
        let promise = promises.get(id)?;
        if promise.client.addr != from {
            self.counters.wrong_address += 1;
            return Some(false);
        }
        match Packet::parse(datagram) {
            // The client sends it again when there is room.
            Ok(Packet::Data(..)) if listener.waiting.len() >= listener.backlog => Some(false),
            Ok(Packet::Data(..)) => {
                let Promise { client, agreement, .. } = promises.take(id)?;
                let config = listener.config.clone();
                listener.waiting.push_back(ConnectionId(id));
                let seed = self.secrets.next_u64();
                let law = self.groups.build(&config.law, from.ip(), seed);
                let connection = Connection::new(now, id, from, agreement, config, law);
                self.insert(id, Entry::Open(Box::new(connection)), Some(client));
                Some(true)
            }
            Ok(Packet::Control(control)) => {
                if matches!(control.body, Control::Shutdown { .. })
                    && let Some(gone) = promises.give_up(id)
                {
                    self.clients.remove(&gone);
                }
                Some(false)
            }
            Err(_) => {
                self.counters.malformed += 1;
                Some(false)
            }
        }
    }

    /// Connections that have waited for their first data for too long are forgotten.
    pub(super) fn forget_promises(&mut self, now: Time) {
        let promises = self.listener.as_mut().and_then(|listener| listener.promises.as_mut());
        let Some(promises) = promises else { return };
        while let Some(gone) = promises.expire(now) {
            self.clients.remove(&gone);
        }
    }

    /// Whether a connection with this ID waits for its first data.
    pub(super) fn is_promised(&self, id: u32) -> bool {
        let promises = self.listener.as_ref().and_then(|listener| listener.promises.as_ref());
        promises.is_some_and(|promises| promises.get(id).is_some())
    }

    /// A packet to a connection that is over or never was: the peer of one that is over may have
    /// missed the shutdown.
    pub(super) fn handle_late(&mut self, now: Time, from: SocketAddr, id: u32, datagram: &[u8]) {
        self.forget_old(now);
        match self.remembered.get_mut(&id) {
            Some(known) if known.peer == from => {
                let goes_on = match known.tags.open(now, datagram) {
                    Some(Ok(Packet::Control(c))) => !matches!(c.body, Control::Shutdown { .. }),
                    Some(Ok(Packet::Data(..)) | Err(_)) => true,
                    None => false,
                };
                let mut room = [0; 20 + OVERHEAD];
                if goes_on
                    && let Some(len) = known.shutdown.write(1, known.peer_id, &mut room[FRONT..])
                {
                    let answer = known.tags.seal(&mut room, len).to_vec();
                    // It is no longer than what it answers.
                    if answer.len() <= datagram.len() {
                        self.push_reply(from, answer);
                    }
                }
            }
            _ => self.counters.unknown_id += 1,
        }
    }

    /// Tells a client that takes itself for connected that its connection had to go, so that it dials again
    /// at once: its data would meet silence until its own time-out. The client has returned a cookie, so the
    /// address is its own.
    fn shut_out(&mut self, client: &Client) {
        let mut packet = [0; 20];
        if let Some(len) = (Control::Shutdown { code: 0 }).write(0, client.id, &mut packet) {
            self.push_reply(client.addr, packet[..len].to_vec());
        }
    }

    fn reply(&mut self, to: SocketAddr, peer_id: u32, handshake: &Handshake) {
        let mut packet = [0; farhaul_wire::HANDSHAKE_LEN];
        if let Some(len) = Control::Handshake(*handshake).write(STAMP, peer_id, &mut packet) {
            self.push_reply(to, packet[..len].to_vec());
        }
    }

    pub(super) fn push_reply(&mut self, to: SocketAddr, packet: Vec<u8>) {
        if self.replies.len() < MAX_REPLIES {
            self.replies.push_back((to, packet));
        }
    }
}
