//! The handshake of TLS 1.3 with raw public keys.
//!
//! Its messages travel as frames of two bytes of length and a message, so that nothing of what
//! follows is read with them. The server's last frame is empty: the client's key was accepted.

use core::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    AlertDescription, CertificateError, CipherSuite, ClientConfig, ClientConnection, Connection,
    DigitallySignedStruct, DistinguishedName, Error as TlsError, PeerIncompatible, ServerConfig,
    ServerConnection, SignatureScheme,
};
use zeroize::Zeroizing;

use crate::key::{Identity, PublicKey};
use crate::schedule::{Cipher, SECRET, Schedule};

/// The longest message of a handshake that is read, bytes, and how many of them.
const MAX_MESSAGE: usize = 16 << 10;
const MAX_MESSAGES: usize = 16;
/// What rustls's exporter tells these secrets from others by (RFC 8446 §7.5).
const EXPORTER_LABEL: &[u8] = b"EXPORTER farhaul records";
/// And the keys of the transport's control packets.
const TAGS_LABEL: &[u8] = b"EXPORTER farhaul control packets";
/// Bytes of such a key.
const TAG_KEY: usize = 16;

/// Which side of the handshake this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Begins.
    Client,
    /// Answers.
    Server,
}

/// Whom to talk to.
#[derive(Clone)]
pub enum Trust {
    /// The holder of this key.
    Only(PublicKey),
    /// The holder of any key of which this says yes.
    Known(Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>),
}

impl Trust {
    fn accepts(&self, key: &PublicKey) -> bool {
        match self {
            Trust::Only(wanted) => wanted == key,
            Trust::Known(known) => known(key),
        }
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trust::Only(key) => f.debug_tuple("Only").field(key).finish(),
            Trust::Known(_) => f.debug_tuple("Known").finish_non_exhaustive(),
        }
    }
}

/// What a handshake has agreed on.
pub struct Session {
    peer: PublicKey,
    cipher: Cipher,
    sending: Zeroizing<[u8; SECRET]>,
    receiving: Zeroizing<[u8; SECRET]>,
    tags: TagSecrets,
}

/// Keys by which the transport below tells its peer's control packets from others: one of what this
/// side sends and one of what it receives, independent of those of the records.
#[derive(Clone)]
pub struct TagSecrets {
    /// Of what this side sends.
    pub sending: Zeroizing<[u8; TAG_KEY]>,
    /// Of what the peer sends.
    pub receiving: Zeroizing<[u8; TAG_KEY]>,
}

/// Not the keys.
impl fmt::Debug for TagSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TagSecrets").finish_non_exhaustive()
    }
}

impl Session {
    /// Whom this is with.
    pub fn peer(&self) -> PublicKey {
        self.peer
    }

    /// The cipher of the records, as it is commonly written.
    pub fn cipher(&self) -> &'static str {
        match self.cipher {
            Cipher::Aes256Gcm => "AES-256-GCM",
            Cipher::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        }
    }

    /// A session without a handshake whose keys everybody knows who knows `secret`: for measuring
    /// and fuzzing, never for data that matters.
    #[cfg(feature = "known-keys")]
    pub fn with_known_keys(role: Role, cipher: Cipher, secret: [u8; SECRET]) -> Session {
        let of_client = Zeroizing::new(secret);
        let of_server = Zeroizing::new(secret.map(|byte| !byte));
        let (sending, receiving) = of_role(role, of_client, of_server);
        let half = |of: &[u8; SECRET]| {
            let mut key = Zeroizing::new([0; TAG_KEY]);
            key.copy_from_slice(&of[..TAG_KEY]);
            key
        };
        let tags = TagSecrets { sending: half(&sending), receiving: half(&receiving) };
        Session { peer: PublicKey::EXAMPLE, cipher, sending, receiving, tags }
    }

    /// Keys for the transport's control packets.
    pub fn tags(&self) -> &TagSecrets {
        &self.tags
    }

    pub(crate) fn sending(&self) -> Schedule {
        Schedule::new(self.cipher, self.sending.clone())
    }

    pub(crate) fn receiving(&self) -> Schedule {
        Schedule::new(self.cipher, self.receiving.clone())
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cipher = self.cipher();
        f.debug_struct("Session").field("peer", &self.peer).field("cipher", &cipher).finish()
    }
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The stream failed or ended.
    #[error("the connection failed while keys were exchanged")]
    Stream(#[source] io::Error),
    /// The peer has another key than it should have.
    #[error("the peer has a key that is not known here: {0}")]
    Stranger(PublicKey),
    /// The peer does not accept this side's key. Only a client hears it, and only from a server that
    /// has shown its own key: no other host can make this answer.
    #[error("the peer does not accept this side's key")]
    Refused,
    /// An alert came before the peer had shown its key. An attacker on the path can write one.
    #[error("an alert came before the peer had shown its key ({0})")]
    Alert(String),
    /// What the peer sent is no handshake, or not of this session.
    #[error("the peer's handshake is not one of this protocol: {0}")]
    Protocol(String),
}

/// Agrees with the peer on the keys of a session, over a stream in both directions. What is in
/// `context` must be the same on both sides, or the records of neither open for the other.
///
/// # Errors
///
/// See [`HandshakeError`].
pub fn handshake(
    mut stream: impl Read + Write,
    role: Role,
    identity: &Identity,
    trust: &Trust,
    context: &[u8],
) -> Result<Session, HandshakeError> {
    let (session, consent) = introduce(&mut stream, role, identity, trust, context)?;
    consent.wait(stream)?;
    Ok(session)
}

/// As [`handshake`], but a client does not wait for the server's [`Consent`]: it knows the server, and what it
/// seals from now on only the holder of the server's key and of `context` can read. Whether the server knows the client, too,
/// is not known yet.
///
/// # Errors
///
/// See [`HandshakeError`].
pub fn introduce(
    stream: impl Read + Write,
    role: Role,
    identity: &Identity,
    trust: &Trust,
    context: &[u8],
) -> Result<(Session, Consent), HandshakeError> {
    let mut tls = connection(role, identity, trust.clone()).map_err(protocol)?;
    let mut frames = Frames { stream, read: 0 };
    loop {
        while tls.wants_write() {
            let mut message = Vec::new();
            tls.write_tls(&mut message).map_err(HandshakeError::Stream)?;
            frames.write(&message)?;
        }
        if !tls.is_handshaking() {
            break;
        }
        let message = frames.read()?;
        if let Err(error) = take(&mut tls, &message) {
            // The peer is told why.
            let mut alert = Vec::new();
            while tls.wants_write() && tls.write_tls(&mut alert).is_ok() {}
            let _ = frames.write(&alert);
            // Keys from an exchange with an unknown peer prove nothing yet, sealed or not.
            return Err(failure(error));
        }
    }
    let session = session(&tls, role, context)?;
    let client = match role {
        Role::Server => {
            frames.write(&[])?;
            None
        }
        Role::Client => Some(Box::new(tls)),
    };
    Ok((session, Consent { client, read: frames.read }))
}

/// The server's word that it takes the client's key; of a server, which has given it, nothing.
#[must_use = "the server may not take this side's key"]
pub struct Consent {
    client: Option<Box<Connection>>,
    read: usize,
}

impl Consent {
    /// Reads it: the first that comes on the `stream` after [`introduce`].
    ///
    /// # Errors
    ///
    /// See [`HandshakeError`].
    pub fn wait(self, stream: impl Read + Write) -> Result<(), HandshakeError> {
        let Some(mut tls) = self.client else { return Ok(()) };
        let message = Frames { stream, read: self.read }.read()?;
        if message.is_empty() {
            return Ok(());
        }
        // The server's Finished has been verified: what opens now is its own word.
        Err(match take(&mut tls, &message) {
            Err(TlsError::AlertReceived(alert)) if is_refusal(alert) => HandshakeError::Refused,
            Err(error) => failure(error),
            Ok(()) => HandshakeError::Protocol("it says more than the handshake".into()),
        })
    }
}

impl fmt::Debug for Consent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consent").finish_non_exhaustive()
    }
}

/// What TLS agreed on.
fn session(tls: &Connection, role: Role, context: &[u8]) -> Result<Session, HandshakeError> {
    let peer = peer_key(tls).ok_or_else(|| HandshakeError::Protocol("it has no key".into()))?;
    let suite = tls.negotiated_cipher_suite().map(|suite| suite.suite());
    let cipher = match suite {
        Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256) => Cipher::ChaCha20Poly1305,
        _ => Cipher::Aes256Gcm,
    };
    let (of_client, of_server) = export(tls, EXPORTER_LABEL, context)?;
    let (sending, receiving) = of_role(role, of_client, of_server);
    let (of_client, of_server) = export(tls, TAGS_LABEL, context)?;
    let tags = of_role(role, of_client, of_server);
    let tags = TagSecrets { sending: tags.0, receiving: tags.1 };
    Ok(Session { peer, cipher, sending, receiving, tags })
}

type Bytes<const N: usize> = Zeroizing<[u8; N]>;

/// Two secrets that only the two sides know: the client's, and the server's.
fn export<const N: usize>(
    tls: &Connection,
    label: &[u8],
    context: &[u8],
) -> Result<(Bytes<N>, Bytes<N>), HandshakeError> {
    let both = Zeroizing::new(vec![0; 2 * N]);
    let both = tls.export_keying_material(both, label, Some(context)).map_err(protocol)?;
    let (mut of_client, mut of_server) = (Zeroizing::new([0; N]), Zeroizing::new([0; N]));
    of_client.copy_from_slice(&both[..N]);
    of_server.copy_from_slice(&both[N..]);
    Ok((of_client, of_server))
}

/// What this side sends with, and receives with.
fn of_role<T>(role: Role, of_client: T, of_server: T) -> (T, T) {
    match role {
        Role::Client => (of_client, of_server),
        Role::Server => (of_server, of_client),
    }
}

fn peer_key(tls: &Connection) -> Option<PublicKey> {
    PublicKey::from_spki(tls.peer_certificates()?.first()?)
}

fn take(tls: &mut Connection, message: &[u8]) -> Result<(), TlsError> {
    let mut rest = message;
    while !rest.is_empty() {
        tls.read_tls(&mut rest).map_err(|error| TlsError::General(error.to_string()))?;
        tls.process_new_packets()?;
    }
    Ok(())
}

fn protocol(error: TlsError) -> HandshakeError {
    HandshakeError::Protocol(error.to_string())
}

fn failure(error: TlsError) -> HandshakeError {
    match error {
        TlsError::InvalidCertificate(CertificateError::Other(other)) => {
            match other.0.downcast_ref::<Unknown>() {
                Some(Unknown(key)) => HandshakeError::Stranger(*key),
                None => HandshakeError::Protocol(other.to_string()),
            }
        }
        TlsError::AlertReceived(alert) => HandshakeError::Alert(format!("{alert:?}")),
        error => protocol(error),
    }
}

/// Whether an alert of the server says that it does not take the client's key (RFC 8446 §6.2).
fn is_refusal(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::CertificateRequired
    )
}

fn connection(role: Role, identity: &Identity, trust: Trust) -> Result<Connection, TlsError> {
    let provider = Arc::new(provider());
    let algorithms = provider.signature_verification_algorithms;
    let verifier = Arc::new(Verifier { trust, algorithms });
    let versions = [&rustls::version::TLS13];
    let key = identity.certified();
    Ok(match role {
        Role::Client => {
            let mut config = ClientConfig::builder_with_provider(provider)
                .with_protocol_versions(&versions)?
                .dangerous()
                .with_custom_certificate_verifier(verifier)
                .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)));
            // Names say nothing here: the key is the name.
            config.enable_sni = false;
            config.resumption = rustls::client::Resumption::disabled();
            let name = ServerName::try_from("farhaul").expect("a name");
            ClientConnection::new(Arc::new(config), name)?.into()
        }
        Role::Server => {
            let mut config = ServerConfig::builder_with_provider(provider)
                .with_protocol_versions(&versions)?
                .with_client_cert_verifier(verifier)
                .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
            config.send_tls13_tickets = 0;
            ServerConnection::new(Arc::new(config))?.into()
        }
    })
}

/// rustls's own choices without AES-128: records have keys of 256 bits.
fn provider() -> CryptoProvider {
    let mut provider = default_provider();
    provider.cipher_suites.retain(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    provider
}

/// Lets only those in whom are trusted.
#[derive(Debug)]
struct Verifier {
    trust: Trust,
    algorithms: WebPkiSupportedAlgorithms,
}

/// The key that was not trusted.
#[derive(Debug, thiserror::Error)]
#[error("the key {0} is not known")]
struct Unknown(PublicKey);

impl Verifier {
    fn verify(&self, key: &CertificateDer<'_>) -> Result<(), TlsError> {
        let key = PublicKey::from_spki(key)
            .ok_or(TlsError::InvalidCertificate(CertificateError::BadEncoding))?;
        if self.trust.accepts(&key) {
            return Ok(());
        }
        let unknown = rustls::OtherError(Arc::new(Unknown(key)));
        Err(TlsError::InvalidCertificate(CertificateError::Other(unknown)))
    }

    fn verify_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }
}

/// TLS 1.2 is not offered.
fn not_offered() -> TlsError {
    TlsError::PeerIncompatible(PeerIncompatible::Tls12NotOffered)
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        self.verify(key).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(not_offered())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.verify_signature(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        self.verify(key).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(not_offered())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.verify_signature(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// The messages of a handshake on the stream.
struct Frames<S> {
    stream: S,
    read: usize,
}

impl<S: Read + Write> Frames<S> {
    fn write(&mut self, message: &[u8]) -> Result<(), HandshakeError> {
        for part in message.chunks(MAX_MESSAGE).chain(message.is_empty().then_some(message)) {
            let mut frame = (part.len() as u16).to_be_bytes().to_vec();
            frame.extend_from_slice(part);
            self.stream.write_all(&frame).map_err(HandshakeError::Stream)?;
        }
        self.stream.flush().map_err(HandshakeError::Stream)
    }

    fn read(&mut self) -> Result<Vec<u8>, HandshakeError> {
        self.read += 1;
        let mut length = [0; 2];
        self.stream.read_exact(&mut length).map_err(HandshakeError::Stream)?;
        let length = usize::from(u16::from_be_bytes(length));
        if length > MAX_MESSAGE || self.read > MAX_MESSAGES {
            return Err(HandshakeError::Protocol("it is too long".into()));
        }
        let mut message = vec![0; length];
        self.stream.read_exact(&mut message).map_err(HandshakeError::Stream)?;
        Ok(message)
    }
}

#[cfg(test)]
mod tests;
