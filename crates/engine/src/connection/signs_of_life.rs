//! Signs of life: this side's own, and those that it asks a silent or doubtful peer for.

use core::time::Duration;

use farhaul_base::Time;

use super::Connection;

/// Stock looks at its ACK timer, of a SYN interval, when a packet arrives, and otherwise each 100 ms. So the last
/// packet of a window is followed by a keep-alive after so long, which brings its ACK.
const STOCK_ACK_PROMPT: Duration = Duration::from_millis(11);
/// A peer whose host has said so often that there is no such port has gone when it has been silent for
/// so long; meanwhile it is asked at these intervals.
const UNREACHABLE_TIMES: u32 = 3;
const UNREACHABLE_SILENCE: Duration = Duration::from_secs(3);
const UNREACHABLE_ASK: Duration = Duration::from_millis(500);

impl Connection {
    /// Lets those that are due go out.
    pub(super) fn give_and_ask_signs_of_life(&mut self, now: Time) {
        if self.restate_at().is_some_and(|at| now >= at) {
            self.receive.acks.restate();
        } else if now - self.last_sent >= self.config.keep_alive {
            self.outbox.keep_alive = true;
        }
        if self.prompt_at().is_some_and(|at| now >= at) {
            self.prompted = self.send.packets_sent;
            self.outbox.keep_alive = true;
        }
        if now >= self.ask_at() {
            self.ask(now);
        }
    }

    /// When the next one is due.
    pub(super) fn next_sign_of_life(&self) -> Time {
        let own = self.last_sent + self.config.keep_alive;
        let others = self.prompt_at().into_iter().chain(self.restate_at());
        others.fold(self.ask_at().min(own), Time::min)
    }

    fn ask(&mut self, now: Time) {
        self.asked_at = now;
        self.outbox.ask = true;
    }

    /// When a peer of ours is told again what has arrived. That is its sign of life of an idle connection, and lets
    /// it see that an acknowledgement was forged ([`disowned`](super::disowned)) also where
    /// what is missing is the last that it has sent, of which this side knows nothing. Where control packets are
    /// authenticated none can be forged.
    fn restate_at(&self) -> Option<Time> {
        let useful = self.ours && !self.tags.are_sent();
        useful.then(|| {
            // An end to which nothing has come has nothing to tell while it sends: only in place of a keep-alive.
            let nothing_came = self.receive.packets_received == 0;
            let told = self.receive.acks.told_at();
            let since = if nothing_came { told.max(self.last_sent) } else { told };
            since + self.config.keep_alive
        })
    }

    /// When a stock peer is prompted for the ACK of what was sent last.
    fn prompt_at(&self) -> Option<Time> {
        let waits = self.stock && self.send.awaits_ack() && self.prompted != self.send.packets_sent;
        waits.then(|| self.last_sent + STOCK_ACK_PROMPT)
    }

    /// How long the peer may be silent.
    pub(super) fn patience(&self) -> Duration {
        let gone = self.is_doubted().is_some_and(|times| times >= UNREACHABLE_TIMES);
        let most = self.config.peer_timeout;
        if gone { most.min(UNREACHABLE_SILENCE) } else { most }
    }

    /// How often the peer's host has said that there is no such port, if nothing has been heard since.
    fn is_doubted(&self) -> Option<u32> {
        self.unreachable.filter(|(at, _)| *at > self.last_heard).map(|(_, times)| times)
    }

    /// The peer's host says that there is no such port. A host that has seen a packet can forge that,
    /// so the peer is asked.
    pub(crate) fn on_unreachable(&mut self, now: Time) {
        if self.is_over() {
            return;
        }
        let times = self.is_doubted().unwrap_or(0);
        self.unreachable = Some((now, times + 1));
        if times == 0 && now - self.asked_at >= UNREACHABLE_ASK {
            self.ask(now);
        }
    }

    /// When a silent peer is next asked for a sign of life: its own may come less often than this
    /// side's patience allows.
    fn ask_at(&self) -> Time {
        if self.is_doubted().is_some() {
            return self.asked_at + UNREACHABLE_ASK;
        }
        let patience = self.config.peer_timeout;
        (self.last_heard + patience / 2).max(self.asked_at + patience / 8)
    }
}
