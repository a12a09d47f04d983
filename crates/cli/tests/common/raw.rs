//! A client of a server that says what it likes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use farhaul_mover::transfer::channel::Channel;
use farhaul_mover::transfer::link::{Link, LinkHandle, Opened, Purpose};
use farhaul_mover::transfer::message::Message;
use farhaul_mover::transfer::session::{join, open};
use farhaul_remote::{Context, DialConfig, Dialer, Terms, Transport};
use farhaul_secure::{Identity, Trust};
use serde_json::{Value, json};

use super::server::Site;

/// A client that says what it likes.
pub struct Raw {
    dialer: Dialer,
}

struct Handle(farhaul_remote::LinkHandle);

impl LinkHandle for Handle {
    fn abort(&self) {
        self.0.abort();
    }
    fn describe(&self) -> String {
        "raw".into()
    }
}

impl Raw {
    pub fn new(site: &Site, identity: Identity) -> Raw {
        let trust = Trust::Only(site.key.parse().expect("a key"));
        let identity = Arc::new(identity);
        let terms = Terms { identity, trust, context: Context::default(), plain: false };
        let mut config = DialConfig::new(Vec::new(), vec![site.address], terms);
        config.transport = Transport::Tcp;
        Raw { dialer: Dialer::new(config) }
    }

    /// A connection to the server.
    pub fn link(&self) -> Link {
        self.try_link().expect("it is let in")
    }

    /// The same, if there is room for it.
    pub fn try_link(&self) -> Option<Link> {
        let link = self.dialer.dial(Duration::from_secs(20), &AtomicBool::new(false));
        let (reader, writer, handle) = link.ok()?.into_parts();
        Some(Link {
            reader: Box::new(reader),
            writer: Box::new(writer),
            handle: Arc::new(Handle(handle)),
        })
    }

    /// Asks for a session, if there is room for the connection.
    pub fn try_ask(&self, order: &Value) -> Option<(Link, Opened)> {
        let mut link = self.try_link()?;
        let opened = open(&mut link, order.to_string().into_bytes()).ok()?;
        Some((link, opened))
    }

    /// Asks for a session, on a connection that can join it.
    pub fn ask(&self, order: &Value) -> (Link, Opened) {
        let mut link = self.link();
        let opened = open(&mut link, order.to_string().into_bytes()).expect("an answer");
        (link, opened)
    }
}

/// What the server is asked for.
pub fn order(export: &str, job: Value) -> Value {
    json!({
        "export": export, "job": job,
        "terms": {
            "verify": true, "dry_run": false, "outage_ms": 60_000, "lanes": 1,
            "fixed_lanes": true, "cc": "bbr", "mss": 1500, "receive_memory": null,
            "send_memory": null, "rate": null, "plain": false,
            "preserve": {"mode": true, "times": true, "owner": false, "xattrs": false,
                         "hard_links": false, "sparse": true},
        },
    })
}

/// To read from an export.
pub fn read_job(path: &str) -> Value {
    json!({"source": {
        "paths": [path.as_bytes()], "stream": false, "rules": [], "count": true, "one_file": false,
    }})
}

/// To write to an export.
pub fn write_job(path: &str) -> Value {
    json!({"sink": {
        "path": path.as_bytes(), "stream": false, "directory": false, "existing": "update",
        "delete": false, "max_delete": null, "allow_empty": false, "spared": [], "keep_set_id": false, "want_digests": false,
        "trust_partial": false, "copy": vec![0; 16],
    }})
}

/// A site that knows two more clients.
pub fn with_two(more: &str) -> (Site, Identity, Identity) {
    let [bob, eve] = [(); 2].map(|()| Identity::generate().expect("a key"));
    let site = Site::new(&format!(
        "{more}[client.bob]\nkey = \"{}\"\n[client.eve]\nkey = \"{}\"\n",
        bob.public_key(),
        eve.public_key()
    ));
    (site, bob, eve)
}

/// A session's control channel, on which anything may be said.
pub struct Control {
    pub channel: Arc<Channel>,
    heard: Receiver<Message>,
    handle: Arc<dyn LinkHandle>,
}

impl Control {
    /// Joins the session over `link`.
    pub fn join(link: Link, session: [u8; 16]) -> Control {
        let (link, received) =
            join(link, session, Purpose::Control { received: 0 }).expect("it is its own");
        let Link { mut reader, mut writer, handle } = link;
        let channel = Arc::<Channel>::default();
        let generation = channel.attach(received).expect("it is new");
        let (hear, heard) = mpsc::channel();
        let (writes, reads) = (Arc::clone(&channel), Arc::clone(&channel));
        thread::spawn(move || writes.write(generation, &mut *writer));
        thread::spawn(move || {
            let _ =
                reads.read(generation, &mut *reader, &mut |message| Ok(hear.send(message).is_ok()));
            reads.detach(generation);
        });
        Control { channel, heard, handle }
    }

    pub fn say(&self, message: &Message) {
        self.channel.say(message);
    }

    /// The next that the server says and `wanted` wants; none if the session has ended.
    pub fn hear<T>(&self, mut wanted: impl FnMut(Message) -> Option<T>) -> Option<T> {
        loop {
            match self.heard.recv_timeout(super::process::LIMIT) {
                Ok(message) => {
                    if let Some(wanted) = wanted(message) {
                        return Some(wanted);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => panic!("the server says nothing"),
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.handle.abort();
    }
}
