//! How a connection becomes a link: both sides show who they are, and that they want the same.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Instant;

use farhaul_secure::{HandshakeError, Identity, Opener, PublicKey, Role, Sealer, Trust, handshake};
use zeroize::Zeroizing;

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
#[derive(Clone, Default)]
pub struct Context(Zeroizing<Vec<u8>>);

impl Context {
    /// Of these bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Context(Zeroizing::new(bytes))
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

/// Makes a link of a connection, until `deadline`.
///
/// With `yields` a peer that wants bytes to go unsealed has its way.
///
/// Dropping `raw` on failure, not aborting it, lets the peer read why.
pub(crate) fn secure(
    raw: Raw,
    role: Role,
    terms: &Terms,
    yields: bool,
    deadline: Instant,
) -> Result<Link, LinkError> {
    let core = Core::new(raw, Some(deadline));
    let wire = || Wire(Arc::clone(&core));
    let session = handshake(wire(), role, &terms.identity, &terms.trust, &terms.context.0)?;
    let (mut sealer, mut opener) = (Sealer::new(wire(), &session), Opener::new(wire(), &session));
    // Before the peer hears of this side, for it may begin to tag its packets then.
    core.set_tag_keys(session.tags());
    // Whatever follows, the first record shows that both know the secret, and what they want. Who
    // yields hears the other first.
    let say = |sealer: &mut Sealer<Wire>, plain: bool| -> Result<(), LinkError> {
        let mut own = CONFIRMATION.to_vec();
        own.push(if plain { GOES_ON_PLAIN } else { GOES_ON_SEALED });
        sealer.write_all(&own).and_then(|()| sealer.flush()).map_err(LinkError::Broken)
    };
    if !yields {
        say(&mut sealer, terms.plain)?;
    }
    let mut peers = [0; CONFIRMATION.len() + 1];
    opener.read_exact(&mut peers).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => LinkError::Secret,
        _ => LinkError::Broken(error),
    })?;
    let (known, wish) = peers.split_at(CONFIRMATION.len());
    if known != CONFIRMATION || !matches!(wish, [GOES_ON_SEALED | GOES_ON_PLAIN]) {
        return Err(LinkError::Protocol("it is of another version".into()));
    }
    let peers_plain = wish == [GOES_ON_PLAIN];
    let plain = terms.plain || (yields && peers_plain);
    if yields {
        say(&mut sealer, plain)?;
    }
    if peers_plain != plain {
        return Err(LinkError::Plain { here: plain });
    }
    if !plain {
        // The peer has the keys: what it has said was sealed with others of the same handshake.
        core.authenticate();
    }
    core.unhurried().map_err(LinkError::Broken)?;
    Ok(match plain {
        true => Link::plain(core, Some(&session)),
        false => Link::sealed(core, &session, opener, sealer),
    })
}
