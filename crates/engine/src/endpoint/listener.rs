//! Listening, and all that comes from those without a connection.

use core::net::SocketAddr;
use std::collections::VecDeque;

use farhaul_base::Time;
use farhaul_wire::{Control, Handshake, Packet, Request};

use super::{Client, ConnectionId, Endpoint, Entry, Socket};
use crate::config::{Config, ConfigError};
use crate::connection::Connection;
use crate::handshake::{Agreement, own_fields, socket_type};
use crate::tags::{FRONT, OVERHEAD};

/// Answers that wait to be sent to strangers: beyond it they are dropped, as a network would.
const MAX_REPLIES: usize = 256;

#[derive(Debug)]
pub struct Listener {
    pub(super) config: Config,
    pub(super) backlog: usize,
    pub(super) waiting: VecDeque<ConnectionId>,
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
        self.listener = Some(Listener { config, backlog: backlog.max(1), waiting });
        Ok(())
    }

    /// Takes no more connections; those not accepted are closed.
    pub fn stop_listening(&mut self, now: Time) {
        if let Some(listener) = self.listener.take() {
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
            let progress = caller.on_handshake(now, &handshake);
            self.make_progress(now, id, progress);
            self.update_schedule(id);
            return;
        }
        if handshake.request == Request::Hello {
            self.offer_cookie(now, from, &handshake);
        } else {
            self.handle_conclusion(now, from, &handshake);
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

    fn handle_conclusion(&mut self, now: Time, from: SocketAddr, request: &Handshake) {
        if self.listener.is_none() && self.clients.is_empty() {
            self.counters.unknown_id += 1;
            return;
        }
        if !self.cookies.check(now, from, request) {
            self.counters.bad_cookie += 1;
            return;
        }
        self.forget_old(now);
        // A client that has not heard the answer is given it again, whether or not anybody still
        // listens.
        let client = Client { addr: from, id: request.socket_id, isn: request.isn.value() };
        if let Some(&id) = self.clients.get(&client) {
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
        let agreement = Agreement::new(mss, request.isn, request).filter(|_| {
            request.version == Handshake::VERSION
                && request.socket_type == socket_type(config.mode)
                && listener.waiting.len() < listener.backlog
        });
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

    fn reply(&mut self, to: SocketAddr, peer_id: u32, handshake: &Handshake) {
        let mut packet = [0; farhaul_wire::HANDSHAKE_LEN];
        if let Some(len) = Control::Handshake(*handshake).write(0, peer_id, &mut packet) {
            self.push_reply(to, packet[..len].to_vec());
        }
    }

    pub(super) fn push_reply(&mut self, to: SocketAddr, packet: Vec<u8>) {
        if self.replies.len() < MAX_REPLIES {
            self.replies.push_back((to, packet));
        }
    }
}
