//! How a connection becomes a link: both sides show who they are, and that they want the same.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Instant;

use farhaul_secure::{
    Consent, HandshakeError, Identity, Opener, PublicKey, Role, Sealer, Session, Trust, introduce,
};
use zeroize::Zeroizing;

use crate::bootstrap::Awaited;
use crate::link::Link;
use crate::wire::{Core, Raw, Wire};

/// What each side seals first: this, and how it wants to go on. From 2 on, the control packets of a
/// sealed link over UDT are authenticated.
const CONFIRMATION: &[u8; 14] = b"farhaul link 2";
const GOES_ON_SEALED: u8 = 0;
const GOES_ON_PLAIN: u8 = 1;

/// What both sides of a link must agree on, and whom this side is ready to talk to.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Who this side is.
    pub identity: Arc<Identity>,
    /// Who the peer may be.
    pub trust: Trust,
    /// What only the two sides know; empty if keys say enough.
    pub context: Context,
    /// Whether bytes go unsealed once both sides know each other.
    pub plain: bool,
}

/// A secret of both sides, which is not shown.
#[derive(Clone)]
pub struct Context(Awaited<Zeroizing<Vec<u8>>>);

/// Empty.
impl Default for Context {
    fn default() -> Self {
        Context::new(Vec::new())
    }
}

impl Context {
    /// Of these bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        let context = Context::later();
        context.set(bytes);
        context
    }

    /// Whose bytes are not known yet: connections wait a while for them.
    pub fn later() -> Self {
        Context(Awaited::default())
    }

    /// They are known.
    pub fn set(&self, bytes: Vec<u8>) {
        self.0.set(Zeroizing::new(bytes));
    }
}

impl core::fmt::Debug for Context {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Context(…)")
    }
}

/// Why a connection has not become a link.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// There is no connection.
    #[error("{0}")]
    Connect(#[source] io::Error),
    /// The connection broke while both sides introduced themselves.
    #[error("{0}")]
    Broken(#[source] io::Error),
    /// Somebody else answers there.
    #[error("somebody else answers there, with the key {0}")]
    Stranger(PublicKey),
    /// The peer, which has shown its key, does not accept this side's.
    #[error("the peer does not accept this side's key")]
    Refused,
    /// The first record does not open: the peer does not know the secret of the session, or an attacker
    /// on the path has changed what it said.
    #[error("the peer's first record does not open: it does not know the secret of this session")]
    Secret,
    /// An alert came before the peer had shown its key: it proves nothing, whatever it says.
    #[error("an alert came before the peer had shown its key ({0})")]
    Alert(String),
    /// One side wants bytes sealed, the other does not.
    #[error("{}", plain_text(*.here))]
    Plain {
        /// This side is the one that wants them plain.
        here: bool,
    },
    /// The peer speaks something else.
    #[error("what answers there does not speak this protocol: {0}")]
    Protocol(String),
}

fn plain_text(here: bool) -> &'static str {
    if here {
        "this side wants no encryption and the peer does: say --plain on both sides or on neither"
    } else {
        "the peer wants no encryption and this side does: say --plain on both sides or on neither"
    }
}

impl LinkError {
    /// Whether what answered has not shown that it is the peer, though it speaks the protocol.
    pub(crate) fn is_stranger(&self) -> bool {
        matches!(self, LinkError::Stranger(_) | LinkError::Secret)
    }

    /// Whether the connection was there, and was closed before the peer showed who it is: it has too many
    /// newcomers, or ends.
    pub fn is_unfinished(&self) -> bool {
        let LinkError::Broken(error) = self else { return false };
        matches!(
            error.kind(),
            ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
                | ErrorKind::UnexpectedEof
        )
    }
}

impl LinkError {
    /// Whether to dial again may help: the connection was [closed](Self::is_unfinished), or what came before
    /// the peer had shown its key was not of TLS or ended it, which an attacker on the path can write.
    pub(crate) fn is_worth_another(&self) -> bool {
        self.is_unfinished() || matches!(self, LinkError::Alert(_) | LinkError::Protocol(_))
    }
}

impl From<HandshakeError> for LinkError {
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::Stream(error) => LinkError::Broken(error),
            HandshakeError::Stranger(key) => LinkError::Stranger(key),
            HandshakeError::Refused => LinkError::Refused,
            HandshakeError::Alert(text) => LinkError::Alert(text),
            HandshakeError::Protocol(text) => LinkError::Protocol(text),
        }
    }
}

/// Makes a link of a connection that a peer has made, until `deadline`.
///
/// With `yields` a peer that wants bytes to go unsealed has its way.
///
/// Dropping `raw` on failure, not aborting it, lets the peer read why.
pub(crate) fn secure(
    raw: Raw,
    terms: &Terms,
    yields: bool,
    deadline: Instant,
) -> Result<Link, LinkError> {
    let mut begun = begin(raw, Role::Server, terms, deadline)?;
    if !yields {
        begun.say(terms.plain)?;
    }
    let peers_plain = begun.confirmation.wait()?;
    let plain = terms.plain || (yields && peers_plain);
    if yields {
        begun.say(plain)?;
    }
    begun.confirmation.agree(plain, peers_plain)?;
    begun.into_link(plain)
}

/// Makes a link of a connection to a peer, which has shown its key, until `deadline`. What the peer says of this side
/// is read by [`Link::confirm`] or by the first reader of the link, and nothing is handed out before. What is written meanwhile
/// only the peer can open, if it knows the secret.
pub(crate) fn approach(raw: Raw, terms: &Terms, deadline: Instant) -> Result<Link, LinkError> {
    let mut begun = begin(raw, Role::Client, terms, deadline)?;
    begun.say(terms.plain)?;
    if terms.plain {
        // Nothing goes unsealed before the peer has said that it wants that, too.
        begun.confirmation.confirm(true)?;
        return begun.into_link(true);
    }
    let Begun { core, session, sealer, confirmation } = begun;
    Ok(Link::unconfirmed(core, &session, confirmation, sealer))
}

/// A connection whose peer has shown its key.
struct Begun {
    core: Arc<Core>,
    session: Session,
    sealer: Sealer<Wire>,
    confirmation: Confirmation,
}

fn begin(raw: Raw, role: Role, terms: &Terms, deadline: Instant) -> Result<Begun, LinkError> {
    let context = terms.context.0.wait().ok_or_else(|| {
        LinkError::Broken(io::Error::new(ErrorKind::TimedOut, "the controller has said nothing"))
    })?;
    let core = Core::new(raw, Some(deadline));
    let wire = || Wire(Arc::clone(&core));
    let (session, consent) = introduce(wire(), role, &terms.identity, &terms.trust, &context)?;
    let (sealer, opener) = (Sealer::new(wire(), &session), Opener::new(wire(), &session));
    // Before the peer hears of this side, for it may begin to tag its packets then.
    core.set_tag_keys(session.tags());
    let confirmation = Confirmation { core: Arc::clone(&core), consent: Some(consent), opener };
    Ok(Begun { core, session, sealer, confirmation })
}

impl Begun {
    /// Whatever follows, the first record shows that this side knows the secret, and what it wants.
    fn say(&mut self, plain: bool) -> Result<(), LinkError> {
        let mut own = CONFIRMATION.to_vec();
        own.push(if plain { GOES_ON_PLAIN } else { GOES_ON_SEALED });
        let said = self.sealer.write_all(&own).and_then(|()| self.sealer.flush());
        said.map_err(LinkError::Broken)
    }

    fn into_link(self, plain: bool) -> Result<Link, LinkError> {
        let Begun { core, session, sealer, confirmation } = self;
        Ok(match plain {
            true => Link::plain(core, Some(&session)),
            false => Link::sealed(core, &session, confirmation.opener, sealer),
        })
    }
}

/// What the peer has still to say before there is a link.
pub(crate) struct Confirmation {
    core: Arc<Core>,
    consent: Option<Consent>,
    opener: Opener<Wire>,
}

impl Confirmation {
    /// Reads that the peer takes this side's key, knows the secret and wants the same.
    pub fn confirm(&mut self, plain: bool) -> Result<(), LinkError> {
        let peers = self.wait()?;
        self.agree(plain, peers)
    }

    /// What it was waited for.
    pub fn into_opener(self) -> Opener<Wire> {
        self.opener
    }

    /// Whether the peer wants bytes to go unsealed: its first record, which opens if it knows the secret.
    fn wait(&mut self) -> Result<bool, LinkError> {
        if let Some(consent) = self.consent.take() {
            consent.wait(Wire(Arc::clone(&self.core)))?;
        }
        let mut peers = [0; CONFIRMATION.len() + 1];
        self.opener.read_exact(&mut peers).map_err(|error| match error.kind() {
            ErrorKind::InvalidData => LinkError::Secret,
            _ => LinkError::Broken(error),
        })?;
        let (known, wish) = peers.split_at(CONFIRMATION.len());
        if known != CONFIRMATION || !matches!(wish, [GOES_ON_SEALED | GOES_ON_PLAIN]) {
            return Err(LinkError::Protocol("it is of another version".into()));
        }
        Ok(wish == [GOES_ON_PLAIN])
    }

    fn agree(&self, plain: bool, peers_plain: bool) -> Result<(), LinkError> {
        if peers_plain != plain {
            return Err(LinkError::Plain { here: plain });
        }
        if !plain {
            // The peer has the keys: what it has said was sealed with others of the same handshake.
            self.core.authenticate();
        }
        self.core.unhurried().map_err(LinkError::Broken)
    }
}
