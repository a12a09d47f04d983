//! The far side of a copy, started over ssh by the near one.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use farhaul::Invitation;
use farhaul_mover::Cancel;
use farhaul_mover::transfer::link::{self, Purpose};
use farhaul_mover::transfer::session::{Links, greet, refuse};
use farhaul_mover::transfer::{Event, Observer, TransferError};
use farhaul_remote::agent::{Controller, ControllerSender, Refusal};
use farhaul_remote::bootstrap::{Advertised, Expected, Greeting, Hello, Start};
use farhaul_remote::{
    Context as LinkContext, DialConfig, Dialer, Injection, Link, ListenConfig, Listening, Received,
    Terms,
};
use farhaul_secure::{Identity, Trust};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::itself::{self, Peer};
use super::job::{Job, Listen, Order, Told};
use super::links::{Dialing, adapt};
use super::report::Measured;
use super::show::file_line;
use super::side::{self, Going, Surroundings, Wish};
use crate::config::value::{At, Transport};
use crate::config::{FlagLayer, Settings};
use crate::exit::Failed;

/// An agent without ssh and without a connection ends after so long.
const ORPHANED: Duration = Duration::from_secs(2);
/// How often it is looked whether a port is free.
const LOOK: Duration = Duration::from_millis(100);

/// What a controller says after its first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// The user has had enough.
    Stop,
}

/// An agent that has greeted.
pub struct Ready {
    order: Order,
    session: [u8; 16],
    terms: Terms,
    /// Whose key is not known yet.
    expected: Option<Expected>,
    listening: Listening,
    links: Receiver<(Purpose, link::Link)>,
}

/// Does what it is ready for.
pub fn serve(ready: Ready, controller: Controller) -> Result<()> {
    let Ready { order, session, mut terms, expected, listening, links } = ready;
    let (sender, received) = controller.into_parts();
    let dialer = match expected {
        None => None,
        Some(expected) => match start(&received)? {
            Start::Listen { peer_key } => {
                expected.set(peer_key);
                None
            }
            Start::Dial { peer_key, udp, tcp } => {
                terms.trust = Trust::Only(peer_key);
                let mut config = DialConfig::new(udp, tcp, terms);
                config.options = order.terms.transport().map_err(anyhow::Error::msg)?;
                config.eager = true;
                Some(Dialer::new(config))
            }
        },
    };
    let cancel = Cancel::default();
    let stop = Arc::new(AtomicBool::new(false));
    let orphaned = Arc::new(AtomicBool::new(false));
    let mut alone = Alone::default();
    heed(received, &order, &cancel, &stop, &orphaned);
    let tell = Telling { sender: sender.clone(), all: order.tell };
    let observe: Observer<'_> = &|event| tell.event(&event);
    let dialing = dialer.map(|dialer| Dialing::new(dialer, stop, order.terms.most_window()));
    let links = match &dialing {
        Some(dialing) => Links::Dial(dialing),
        None => Links::Accept(links),
    };
    let mut shown = super::show::Told::new(|line| tell.send(&Told::Progress(line)), order.tell);
    let finished = side::run(
        &order.job,
        &order.terms,
        links,
        Surroundings {
            session,
            cancel,
            observe,
            show: &mut |going| {
                shown.look(going);
                alone.heed(going, orphaned.load(Ordering::Relaxed))
            },
            service: None,
        },
    );
    listening.close();
    let error = finished.result.err().map(|error| (error.exit_code(), error.to_string()));
    let code = error.as_ref().map(|(code, _)| *code);
    let measured = Box::new(Measured::of(&finished.going));
    let summary = Box::new(finished.summary);
    // Who has gone does not want to know.
    let _ = sender.send(&Told::End { summary, measured, error });
    match code {
        None => Ok(()),
        // The controller says it; here it would be said twice.
        Some(code) => Err(Failed { code, message: String::new() }.into()),
    }
}

/// An agent that listens and does not know yet for whom, nor what is to be done. Connections wait until it knows.
pub struct Opened {
    plain: bool,
    terms: Terms,
    expected: Expected,
    session: Arc<OnceLock<[u8; 16]>>,
    listening: Listening,
    links: Receiver<(Purpose, link::Link)>,
}

/// Listens as the controller wants it.
///
/// # Errors
///
/// What to tell the controller.
pub fn open(how: &Listen) -> Result<(Greeting, Opened), Refusal> {
    let settings = Settings::load(&FlagLayer::default(), None).map_err(|usage| usage.0)?;
    if how.plain && !settings.plain.value {
        let text = "this side does not allow data that is not encrypted: leave --plain out, or \
                    set plain = true in ~/.config/farhaul/config.toml here";
        return Err(Refusal { code: 3, text: text.into() });
    }
    // Beside what the controller has still to say.
    let _ = thread::Builder::new().name("farhaul-random".into()).spawn(farhaul_secure::prepare);
    let identity = Identity::generate().map_err(|error| error.to_string())?;
    let key = identity.public_key();
    let expected = Expected::new();
    let terms = Terms {
        identity: Arc::new(identity),
        trust: expected.trust(),
        context: LinkContext::later(),
        plain: how.plain,
    };
    let mut config = ListenConfig::new(terms.clone());
    let mut invitation = [0; 16];
    getrandom::fill(&mut invitation).map_err(|error| error.to_string())?;
    let invitation = Invitation::new(invitation);
    config.options = how.wire.options()?.invitation(Some(invitation));
    if let Some((first, last)) = how.ports {
        config.ports = first..=last;
    }
    (config.udp, config.tcp) = (how.udp, how.tcp);
    let session = Arc::new(OnceLock::new());
    let (give, links) = channel();
    // What is sent on a link is held against the window of the order's memory.
    let window = how.wire.most_window();
    let injection = Injection::default();
    let known = Arc::clone(&session);
    let newcomer = move |link: Link| {
        link.handle().share(&injection);
        // It has shown that it knows the secret, so that this side does as well.
        let Some(session) = known.get() else { return };
        newcomer(adapt(link, window), *session, &give);
    };
    let listening = listen(&config, newcomer).map_err(|error| format!("cannot listen: {error}"))?;
    let greeting = Greeting {
        udp_port: listening.udp_port(),
        tcp_port: listening.tcp_port(),
        invitation: Some(invitation),
        addresses: listening.addresses(),
        advertised: advertised(&settings.advertise.value, &listening),
        ..Greeting::new(key)
    };
    let plain = how.plain;
    Ok((greeting, Opened { plain, terms, expected, session, listening, links }))
}

/// What the first line asks for, as far as that can be done before there are connections.
///
/// # Errors
///
/// What to tell the controller.
pub fn begin(hello: &Hello, order: Order, opened: Opened) -> Result<Ready, Refusal> {
    let Opened { plain, terms, expected, session, listening, links } = opened;
    if hello.plain != plain {
        let text = "the controller wants other things than it has said before";
        return Err(Refusal { code: 3, text: text.into() });
    }
    // Before anything takes long: connections wait for it. The session first, for a peer that comes with the secret needs it.
    let _ = session.set(hello.session.0);
    let expected = match hello.key {
        Some(key) => {
            expected.set(key);
            None
        }
        None => Some(expected),
    };
    hello.tell(&terms.context);
    side::check(&order.job, &order.terms)
        .map_err(|error| Refusal { code: error.exit_code(), text: error.to_string() })?;
    let itself = match (&order.job, &order.peer) {
        (Job::Source(job), Some(Peer::Target(target))) => itself::check_sources(job, target),
        (Job::Sink(job), Some(Peer::Sources(sources))) => itself::check_target(job, sources),
        _ => Ok(()),
    };
    itself.map_err(|text| Refusal { code: 2, text })?;
    Ok(Ready { order, session: hello.session.0, terms, expected, listening, links })
}

/// The same for a controller that has not said before how to listen.
///
/// # Errors
///
/// What to tell the controller.
pub fn prepare(hello: &Hello, order: Order) -> Result<(Greeting, Ready), Refusal> {
    let how = Listen {
        udp: hello.transport != farhaul_remote::Transport::Tcp,
        tcp: hello.transport != farhaul_remote::Transport::Udp,
        plain: hello.plain,
        ports: order.ports,
        wire: order.terms.wire(),
    };
    let (greeting, opened) = open(&how)?;
    Ok((greeting, begin(hello, order, opened)?))
}

/// Where this host has been told that it is reached.
fn advertised(all: &[At], listening: &Listening) -> Option<Advertised> {
    let of = |other: Transport, port: Option<u16>| -> Vec<SocketAddr> {
        let Some(port) = port else { return Vec::new() };
        let mine = all.iter().filter(|at| at.transport != other);
        mine.map(|at| SocketAddr::new(at.address, at.port.unwrap_or(port))).collect()
    };
    let (udp, tcp) = (listening.udp_port(), listening.tcp_port());
    (!all.is_empty())
        .then(|| Advertised { udp: of(Transport::Tcp, udp), tcp: of(Transport::Udp, tcp) })
}

/// A connection of the peer: what it is for.
fn newcomer(mut link: link::Link, session: [u8; 16], give: &Sender<(Purpose, link::Link)>) {
    match greet(&mut link) {
        Ok(join) if join.session == session => drop(give.send((join.purpose, link))),
        Ok(_) => drop(refuse(&mut link, "there is no such transfer here")),
        // It has gone, or is no farhaul.
        Err(_) => {}
    }
}

/// Waits for the word who begins.
fn start(received: &Receiver<Received>) -> Result<Start> {
    match received.recv() {
        Ok(Received::Message(value)) => {
            serde_json::from_value(value).context("the controller's second line")
        }
        _ => Err(Failed { code: 1, message: "the controller went away".into() }.into()),
    }
}

/// Does what the controller says from now on.
fn heed(
    received: Receiver<Received>,
    order: &Order,
    cancel: &Cancel,
    stop: &Arc<AtomicBool>,
    orphaned: &Arc<AtomicBool>,
) {
    let (cancel, stop, orphaned) = (cancel.clone(), Arc::clone(stop), Arc::clone(orphaned));
    // Who copies between two others is needed until the end.
    let needed = order.tell;
    thread::spawn(move || {
        while let Ok(Received::Message(value)) = received.recv() {
            if serde_json::from_value::<Command>(value).is_ok() {
                stop.store(true, Ordering::Relaxed);
                cancel.cancel();
            }
        }
        orphaned.store(true, Ordering::Relaxed);
        if needed {
            stop.store(true, Ordering::Relaxed);
            cancel.cancel();
        }
    });
}

/// An agent whose ssh has gone, or whose controller has. If the controller has not, it connects again
/// at once, or starts another agent; if it has, what is under way is free for another to take up.
#[derive(Default)]
struct Alone {
    known: bool,
    /// Since when there has been no connection.
    since: Option<Instant>,
}

impl Alone {
    fn heed(&mut self, going: &Going, orphaned: bool) -> Wish {
        if !orphaned {
            return Wish::None;
        }
        if !std::mem::replace(&mut self.known, true) {
            return Wish::Reconnect;
        }
        if !going.cut_off {
            self.since = None;
            return Wish::None;
        }
        if self.since.get_or_insert_with(Instant::now).elapsed() < ORPHANED {
            return Wish::None;
        }
        Wish::End(TransferError::Lost { after: ORPHANED, why: "its controller has gone".into() })
    }
}

/// Listens. A port of an agent whose controller was killed is free again soon.
fn listen(
    config: &ListenConfig,
    deliver: impl Fn(Link) + Clone + Send + Sync + 'static,
) -> io::Result<Listening> {
    let until = Instant::now() + 3 * ORPHANED;
    loop {
        match Listening::bind(config, deliver.clone()) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                thread::sleep(LOOK);
            }
            bound => return bound,
        }
    }
}

/// Tells the controller what it wants to know.
struct Telling {
    sender: ControllerSender,
    /// Everything: it has no part of its own.
    all: bool,
}

impl Telling {
    fn send(&self, told: &Told) {
        // Whether the controller still listens is seen where its words are read.
        let _ = self.sender.send(&serde_json::to_value(told).unwrap_or(Value::Null));
    }

    fn event(&self, event: &Event<'_>) {
        if !self.all {
            return;
        }
        if let Some(line) = file_line(event) {
            return self.send(&Told::File(line));
        }
        match event {
            Event::Deleted { path } => self.send(&Told::Deleted((*path).into())),
            Event::Failed { failure, .. } => self.send(&Told::Failed(failure.to_string())),
            Event::Note(text) => self.send(&Told::Note((*text).to_owned())),
            Event::Skipped { path, what } => {
                self.send(&Told::Note(format!("left out {}: {what}", path.display())));
            }
            _ => {}
        }
    }
}
