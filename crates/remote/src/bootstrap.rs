//! What a controller and its agents tell each other before there are links.
//!
//! The controller's first line is a [`Hello`]; the agent answers with a [`Greeting`]. An agent that was told on its
//! command line how to listen greets at once, so that it is dialed while the controller's first line is on its way, and
//! answers that one with an [`Answer`]; nothing is accepted on a connection before. Who is to
//! listen and who to dial follows as a [`Start`], so that two agents can be brought together that
//! the controller has no link with. Fields that are not known are passed over.

use core::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use farhaul::Invitation;
use farhaul_secure::{Identity, PublicKey, Trust};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use zeroize::{Zeroize, Zeroizing};

use crate::dial::Transport;
use crate::lock;
use crate::secured::Context;

/// The version of these messages and of all that follows them. Both sides must have the same.
pub const PROTOCOL: u32 = 2;
/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What the agent's first line begins with.
pub const GREETING_PREFIX: &str = "FARHAUL1 ";

/// The most addresses at which one host is sought: an agent cannot have others scan a network.
const MAX_ADDRESSES: usize = 32;

/// 32 bytes that only the two sides know. It is neither shown nor left in memory.
///
/// It is not compared: whether the peer knows it shows when its first record opens.
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; 32]>);

/// Which transfer this is. It is no secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 16]);

/// The controller's first line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The controller's version.
    pub version: String,
    /// Its [`PROTOCOL`].
    pub protocol: u32,
    /// Its key, if it has a role of its own; else the [`Start`] has the peer's.
    #[serde(default, with = "key_text")]
    pub key: Option<PublicKey>,
    /// What both ends of each link know.
    pub secret: Secret,
    /// The transfer.
    pub session: SessionId,
    /// Whether bytes go unsealed.
    #[serde(default)]
    pub plain: bool,
    /// Which transports may be used.
    #[serde(default)]
    pub transport: Transport,
    /// What the agent is to do: the caller's.
    #[serde(default)]
    pub body: Value,
}

/// The agent's first line, after [`GREETING_PREFIX`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Greeting {
    /// The agent's version.
    pub version: String,
    /// Its [`PROTOCOL`].
    pub protocol: u32,
    /// Its fresh key.
    #[serde(default, with = "key_text", skip_serializing_if = "Option::is_none")]
    pub key: Option<PublicKey>,
    /// Where it listens for UDT, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp_port: Option<u16>,
    /// Where it listens for TCP, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_port: Option<u16>,
    /// What its UDT listener takes in place of a cookie.
    #[serde(default, with = "invitation_text", skip_serializing_if = "Option::is_none")]
    pub invitation: Option<Invitation>,
    /// Its host's addresses, best first.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// Where it is to be dialed, and nowhere else, if its host has been told so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertised: Option<Advertised>,
    /// Why it cannot serve, if it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The exit code that this is worth, if not 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u8>,
}

/// What an agent that has greeted before makes of the controller's first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// It does what it is asked for.
    Ready,
    /// It does not.
    Refused {
        /// Why, for people.
        text: String,
        /// The exit code that this is worth.
        code: u8,
    },
}

/// Addresses at which others reach a host that cannot know them by itself, as behind a translator of
/// addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advertised {
    /// For UDT, best first.
    #[serde(default)]
    pub udp: Vec<SocketAddr>,
    /// For TCP, best first.
    #[serde(default)]
    pub tcp: Vec<SocketAddr>,
}

/// Who begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "start", rename_all = "snake_case")]
pub enum Start {
    /// The agent waits at the ports of its greeting.
    Listen {
        /// Who will dial.
        #[serde(with = "needed_key_text")]
        peer_key: PublicKey,
    },
    /// The agent dials.
    Dial {
        /// Who listens there.
        #[serde(with = "needed_key_text")]
        peer_key: PublicKey,
        /// Where it may listen for UDT, best first.
        #[serde(default)]
        udp: Vec<SocketAddr>,
        /// Where it may listen for TCP, best first.
        #[serde(default)]
        tcp: Vec<SocketAddr>,
    },
}

/// Why there are no random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random numbers for a new secret")]
pub struct NoEntropy;

/// What a new transfer needs: its key of this side, its secret and its name.
///
/// # Errors
///
/// [`NoEntropy`].
pub fn fresh() -> Result<(Arc<Identity>, Secret, SessionId), NoEntropy> {
    let identity = Identity::generate().map_err(|_| NoEntropy)?;
    let mut secret = Zeroizing::new([0; 32]);
    let mut session = [0; 16];
    getrandom::fill(&mut secret[..]).map_err(|_| NoEntropy)?;
    getrandom::fill(&mut session).map_err(|_| NoEntropy)?;
    Ok((Arc::new(identity), Secret(secret), SessionId(session)))
}

/// A session that nobody has named before.
///
/// # Errors
///
/// The system gives no random numbers.
pub fn fresh_session() -> Result<SessionId, NoEntropy> {
    let mut session = [0; 16];
    getrandom::fill(&mut session).map_err(|_| NoEntropy)?;
    Ok(SessionId(session))
}

/// The context of each link of a transfer: see [`Terms`](crate::Terms).
pub fn context(secret: &Secret, session: SessionId) -> Context {
    Context::new(context_bytes(secret, session))
}

fn context_bytes(secret: &Secret, session: SessionId) -> Vec<u8> {
    [&secret.0[..], &session.0[..]].concat()
}

impl Hello {
    /// Of this version, with the defaults.
    pub fn new(key: Option<PublicKey>, secret: Secret, session: SessionId, body: Value) -> Hello {
        let (version, protocol) = (VERSION.to_owned(), PROTOCOL);
        let transport = Transport::Auto;
        Hello { version, protocol, key, secret, session, plain: false, transport, body }
    }

    /// The context of each link.
    pub fn context(&self) -> Context {
        context(&self.secret, self.session)
    }

    /// Makes the context known to a side that listens already.
    pub fn tell(&self, context: &Context) {
        context.set(context_bytes(&self.secret, self.session));
    }

    /// Whether this side understands what will follow.
    ///
    /// # Errors
    ///
    /// It does not: both versions, for the user.
    pub fn check(&self) -> Result<(), String> {
        if self.protocol == PROTOCOL {
            return Ok(());
        }
        Err(other_version("this host", VERSION, PROTOCOL, &self.version, self.protocol))
    }
}

/// What to say when versions do not fit; `there` has `version`, the other side `other`.
pub(crate) fn other_version(
    there: &str,
    version: &str,
    protocol: u32,
    other: &str,
    other_protocol: u32,
) -> String {
    let (version, other) = (crate::lines::shown(version), crate::lines::shown(other));
    format!(
        "farhaul on {there} is version {version} (protocol {protocol}), the other side's is version \
         {other} (protocol {other_protocol}), and they do not understand each other: install the \
         same version on both hosts"
    )
}

impl Greeting {
    /// Of this version, of an agent that does not listen.
    pub fn new(key: PublicKey) -> Greeting {
        let version = VERSION.to_owned();
        Greeting { version, protocol: PROTOCOL, key: Some(key), ..Greeting::default() }
    }

    /// Of an agent that cannot serve.
    pub fn refusal(error: String) -> Greeting {
        let version = VERSION.to_owned();
        Greeting { version, protocol: PROTOCOL, error: Some(error), ..Greeting::default() }
    }

    /// Where the agent may be dialed over UDT and over TCP: where it wants to be; or else at `known`,
    /// which this side would try by itself, then where the agent believes to be, each once.
    pub fn candidates(&self, known: &[IpAddr]) -> (Vec<SocketAddr>, Vec<SocketAddr>) {
        if let Some(Advertised { udp, tcp }) = &self.advertised {
            // No peer can make this host dial thousands.
            let few = |all: &[SocketAddr]| all.iter().take(MAX_ADDRESSES).copied().collect();
            return (few(udp), few(tcp));
        }
        let mut addresses: Vec<IpAddr> = Vec::new();
        for address in known.iter().chain(&self.addresses) {
            if addresses.len() < MAX_ADDRESSES && !addresses.contains(address) {
                addresses.push(*address);
            }
        }
        let at = |port: Option<u16>| {
            let port = port.filter(|port| *port != 0);
            port.map_or(Vec::new(), |port| {
                addresses.iter().map(|address| SocketAddr::new(*address, port)).collect()
            })
        };
        (at(self.udp_port), at(self.tcp_port))
    }
}

/// A peer whose key becomes known only after this side has begun to listen. Who comes before waits a
/// while for it: both may have been told of each other at the same time.
#[derive(Clone, Debug, Default)]
pub struct Expected(Awaited<PublicKey>);

/// How long somebody who comes early waits: less than a handshake may take.
const EARLY: Duration = Duration::from_secs(5);

/// What becomes known only after this side has begun to listen.
#[derive(Debug)]
pub(crate) struct Awaited<T>(Arc<(Mutex<Option<T>>, Condvar)>);

impl<T> Clone for Awaited<T> {
    fn clone(&self) -> Self {
        Awaited(Arc::clone(&self.0))
    }
}

impl<T> Default for Awaited<T> {
    fn default() -> Self {
        Awaited(Arc::default())
    }
}

impl<T: Clone> Awaited<T> {
    pub fn set(&self, value: T) {
        *lock(&self.0.0) = Some(value);
        self.0.1.notify_all();
    }

    /// None if it has not become known for a while.
    pub fn wait(&self) -> Option<T> {
        let (known, changed) = &*self.0;
        let waited = changed.wait_timeout_while(lock(known), EARLY, |known| known.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

impl Expected {
    /// Nobody yet.
    pub fn new() -> Self {
        Expected::default()
    }

    /// From now on the holder of `key`, and nobody else.
    pub fn set(&self, key: PublicKey) {
        self.0.set(key);
    }

    /// For [`Terms`](crate::Terms).
    pub fn trust(&self) -> Trust {
        let expected = self.0.clone();
        Trust::Known(Arc::new(move |key| expected.wait() == Some(*key)))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The value of `N` pairs of hexadecimal digits; nothing of it is left behind.
fn from_hex<const N: usize>(text: &str) -> Option<Zeroizing<[u8; N]>> {
    let mut bytes = Zeroizing::new([0; N]);
    if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digit = |digit: u8| (digit as char).to_digit(16).unwrap_or(0) as u8;
        *byte = digit(pair[0]) << 4 | digit(pair[1]);
    }
    Some(bytes)
}

fn hex_field<'de, const N: usize, D: Deserializer<'de>>(
    from: D,
    what: &str,
) -> Result<Zeroizing<[u8; N]>, D::Error> {
    let mut text = String::deserialize(from)?;
    let bytes = from_hex(&text);
    text.zeroize();
    bytes.ok_or_else(|| D::Error::custom(format!("a {what} is {} hexadecimal digits", 2 * N)))
}

fn hex_text(bytes: &[u8]) -> Zeroizing<String> {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    // Whole from the start: a text that grew would leave copies behind.
    let mut text = Zeroizing::new(String::with_capacity(2 * bytes.len()));
    for byte in bytes {
        text.extend([digit(byte >> 4), digit(byte & 15)]);
    }
    text
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex_text(&*self.0))
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        hex_field(from, "secret").map(Secret)
    }
}

impl Serialize for SessionId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SessionId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        hex_field(from, "session").map(|bytes| SessionId(*bytes))
    }
}

impl Serialize for Transport {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Transport {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// The key of an invitation that may be missing.
mod invitation_text {
    use super::*;

    pub fn serialize<S: Serializer>(all: &Option<Invitation>, to: S) -> Result<S::Ok, S::Error> {
        match all {
            Some(invitation) => to.serialize_str(&hex_text(invitation.key())),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Invitation>, D::Error> {
        hex_field(from, "key of an invitation").map(|key| Some(Invitation::new(*key)))
    }
}

/// A key that is always there.
mod needed_key_text {
    use super::*;

    pub fn serialize<S: Serializer>(key: &PublicKey, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(key)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PublicKey, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// A key that may be missing.
mod key_text {
    use super::*;

    pub fn serialize<S: Serializer>(key: &Option<PublicKey>, to: S) -> Result<S::Ok, S::Error> {
        key.map(|key| key.to_string()).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PublicKey>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn who_comes_before_the_key_is_known_waits_for_it() {
        let [wanted, other] = [(); 2].map(|()| Identity::generate().unwrap().public_key());
        let expected = Expected::new();
        let Trust::Known(known) = expected.trust() else { panic!("a question") };
        std::thread::scope(|threads| {
            let early = [wanted, other].map(|key| {
                let known = Arc::clone(&known);
                threads.spawn(move || known(&key))
            });
            expected.set(wanted);
            assert_eq!(early.map(|asked| asked.join().unwrap()), [true, false]);
        });
        assert!(known(&wanted) && !known(&other));
    }

    #[test]
    fn a_hello_is_read_back_and_hides_its_secret() {
        let (identity, secret, session) = fresh().unwrap();
        let body = serde_json::json!({ "role": "sink" });
        let hello = Hello::new(Some(identity.public_key()), secret.clone(), session, body);
        let text = serde_json::to_string(&hello).unwrap();
        let with_more = text.replacen('{', "{\"later\":7,", 1);
        let read: Hello = serde_json::from_str(&with_more).unwrap();
        assert_eq!((read.key, read.session), (hello.key, session));
        assert_eq!(read.secret.0, secret.0);
        assert_eq!((read.transport, read.body), (Transport::Auto, hello.body.clone()));
        let digits = text.split("\"secret\":\"").nth(1).unwrap()[..64].to_owned();
        assert!(!format!("{hello:?} {:?}", hello.context()).contains(&digits[..8]));
        for wrong in [&digits[..62], "+", ""] {
            let wrong = text.replace(&digits, wrong);
            let error = serde_json::from_str::<Hello>(&wrong).unwrap_err().to_string();
            assert!(error.contains("a secret is 64 hexadecimal digits"), "{error}");
        }
    }

    #[test]
    fn another_protocol_is_told_with_both_versions() {
        let (_, secret, session) = fresh().unwrap();
        let mut hello = Hello::new(None, secret, session, Value::Null);
        assert_eq!(hello.check(), Ok(()));
        (hello.protocol, hello.version) = (PROTOCOL + 1, "9.9\u{7}".into());
        let text = hello.check().unwrap_err();
        assert!(text.contains("9.9\u{fffd}") && text.contains(VERSION), "{text}");
    }

    #[test]
    fn starts_are_read_back() {
        let peer_key = Identity::generate().unwrap().public_key();
        let udp = vec!["10.0.0.1:7".parse().unwrap()];
        for start in [Start::Listen { peer_key }, Start::Dial { peer_key, udp, tcp: Vec::new() }] {
            let text = serde_json::to_string(&start).unwrap();
            assert_eq!(serde_json::from_str::<Start>(&text).unwrap(), start, "{text}");
        }
    }

    #[test]
    fn candidates_are_known_ones_first_and_each_once() {
        let key = Identity::generate().unwrap().public_key();
        let addresses = ["10.0.0.1", "fd00::1"].map(|text| text.parse().unwrap()).to_vec();
        let known = ["192.0.2.1", "10.0.0.1"].map(|text| text.parse().unwrap());
        let greeting = Greeting { udp_port: Some(7), addresses, ..Greeting::new(key) };
        let (udp, tcp) = greeting.candidates(&known);
        let texts: Vec<_> = udp.iter().map(SocketAddr::to_string).collect();
        assert_eq!(texts, ["192.0.2.1:7", "10.0.0.1:7", "[fd00::1]:7"]);
        assert_eq!(tcp, []);
        let many = (0..1000u32).map(|n| IpAddr::from(n.to_be_bytes())).collect();
        let crowded = Greeting { udp_port: Some(7), addresses: many, ..Greeting::new(key) };
        let (udp, _) = crowded.candidates(&known);
        assert_eq!((udp.len(), udp[0].ip()), (MAX_ADDRESSES, known[0]));
        let many: Vec<SocketAddr> = (0..1_000)
            .map(|n: u32| (std::net::Ipv4Addr::from(0x0a00_0000 + n), 7).into())
            .collect();
        let advertised = Some(Advertised { udp: many.clone(), tcp: many.clone() });
        let (udp, tcp) = Greeting { advertised, ..Greeting::default() }.candidates(&known);
        assert_eq!((&udp[..], &tcp[..]), (&many[..MAX_ADDRESSES], &many[..MAX_ADDRESSES]));
        let advertised = Advertised { tcp: vec!["198.51.100.1:9".parse().unwrap()], udp: vec![] };
        let greeting = Greeting { advertised: Some(advertised.clone()), ..greeting };
        assert_eq!(greeting.candidates(&known), (advertised.udp, advertised.tcp));
    }
}
