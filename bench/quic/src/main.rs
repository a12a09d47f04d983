//! quinn from memory to memory, one flow, as the peers beside it: one JSON object on standard output.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig, VarInt};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

const USAGE: &str = "\
usage: quic_perf recv ADDR PORT [options]
       quic_perf send ADDR PORT [-t SECONDS] [options]
  --cc cubic|bbr|newreno   quinn's congestion control (default cubic, as quinn's)
  --window BYTES           flow control and send window (default 64 MiB)
";

/// Largest datagram without headers of IPv4 and UDP on an MTU of 1500; quinn begins with 1200 otherwise.
const DATAGRAM_BYTES: u16 = 1_472;
/// Of the kernel, as udt_perf has them; it may give less.
const SOCKET_BYTES: usize = 32 << 20;
/// Written at a time; a few megabytes of memory, as an application's own buffer is.
const BLOCK_BYTES: usize = 1 << 20;
const INTERVAL: Duration = Duration::from_millis(100);
/// A lossy path may swallow the word that all is over.
const IDLE_MS: u32 = 10_000;

struct Arguments {
    sends: bool,
    address: SocketAddr,
    time: Duration,
    window: u32,
    control: Arc<dyn ControllerFactory + Send + Sync>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(arguments) = parse(&words) else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.context("no runtime").and_then(|runtime| {
        runtime.block_on(async {
            if arguments.sends { send(&arguments).await } else { receive(&arguments).await }
        })
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quic_perf: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn parse(words: &[String]) -> Option<Arguments> {
    let [role, address, port, options @ ..] = words else { return None };
    let mut arguments = Arguments {
        sends: match role.as_str() {
            "send" => true,
            "recv" => false,
            _ => return None,
        },
        address: SocketAddr::new(address.parse().ok()?, port.parse().ok()?),
        time: Duration::from_secs(5),
        window: 64 << 20,
        control: Arc::new(CubicConfig::default()),
    };
    for pair in options.chunks(2) {
        let [option, value] = pair else { return None };
        match option.as_str() {
            "-t" => arguments.time = Duration::try_from_secs_f64(value.parse().ok()?).ok()?,
            "--window" => arguments.window = value.parse().ok()?,
            "--cc" => {
                arguments.control = match value.as_str() {
                    "cubic" => Arc::new(CubicConfig::default()),
                    "bbr" => Arc::new(BbrConfig::default()),
                    "newreno" => Arc::new(NewRenoConfig::default()),
                    _ => return None,
                };
            }
            _ => return None,
        }
    }
    Some(arguments)
}

fn transport(arguments: &Arguments) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    let window = VarInt::from_u32(arguments.window);
    transport.stream_receive_window(window).receive_window(window);
    transport.max_idle_timeout(Some(VarInt::from_u32(IDLE_MS).into()));
    transport.send_window(u64::from(arguments.window));
    transport.initial_mtu(DATAGRAM_BYTES).mtu_discovery_config(None);
    transport.congestion_controller_factory(Arc::clone(&arguments.control));
    Arc::new(transport)
}

fn socket(bind: SocketAddr) -> Result<std::net::UdpSocket> {
    let socket = std::net::UdpSocket::bind(bind).with_context(|| bind.to_string())?;
    let options = socket2::SockRef::from(&socket);
    // The kernel gives what it allows.
    let _ = options.set_recv_buffer_size(SOCKET_BYTES);
    let _ = options.set_send_buffer_size(SOCKET_BYTES);
    Ok(socket)
}

fn configuration() -> EndpointConfig {
    let mut configuration = EndpointConfig::default();
    let _ = configuration.max_udp_payload_size(DATAGRAM_BYTES);
    configuration
}

async fn receive(arguments: &Arguments) -> Result<()> {
    let key = rcgen::generate_simple_self_signed(["quic_perf".to_owned()])?;
    let private = PrivateKeyDer::try_from(key.signing_key.serialize_der())
        .map_err(|why| anyhow::anyhow!("the key: {why}"))?;
    let mut server = ServerConfig::with_single_cert(vec![key.cert.der().clone()], private)?;
    server.transport_config(transport(arguments));
    let socket = socket(arguments.address)?;
    let endpoint =
        Endpoint::new(configuration(), Some(server), socket, Arc::new(TokioRuntime))?;
    let incoming = endpoint.accept().await.context("the endpoint is closed")?;
    let connection = incoming.await?;
    let opened = Instant::now();
    let mut stream = connection.accept_uni().await?;
    let (mut bytes, mut part, mut last, mut rates) = (0_u64, 0_u64, opened, Vec::new());
    // A peer that has gone away ends the measurement too.
    while let Ok(Some(chunk)) = stream.read_chunk(BLOCK_BYTES, true).await {
        last = Instant::now();
        while last - opened >= INTERVAL * (rates.len() as u32 + 1) {
            rates.push(part as f64 * 8.0 / INTERVAL.as_secs_f64());
            part = 0;
        }
        bytes += chunk.bytes.len() as u64;
        part += chunk.bytes.len() as u64;
    }
    connection.close(VarInt::from_u32(0), b"");
    let seconds = (last - opened).as_secs_f64();
    let intervals: Vec<String> = (1..)
        .zip(&rates)
        .map(|(number, rate)| {
            let end = f64::from(number) * INTERVAL.as_secs_f64();
            format!("{{\"end\":{end:.1},\"bits_per_second\":{rate:.0}}}")
        })
        .collect();
    println!(
        "{{\"role\":\"recv\",\"bytes\":{bytes},\"seconds\":{seconds:.6},\"bits_per_second\":{:.0},\
         \"intervals\":[{}]}}",
        if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 },
        intervals.join(",")
    );
    endpoint.wait_idle().await;
    Ok(())
}

async fn send(arguments: &Arguments) -> Result<()> {
    let any = match arguments.address {
        SocketAddr::V4(_) => "0.0.0.0:0".parse()?,
        SocketAddr::V6(_) => "[::]:0".parse()?,
    };
    let endpoint = Endpoint::new(configuration(), None, socket(any)?, Arc::new(TokioRuntime))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let crypto = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting(provider)))
        .with_no_client_auth();
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(crypto)?;
    let mut client = ClientConfig::new(Arc::new(crypto));
    client.transport_config(transport(arguments));
    let connection = endpoint.connect_with(client, arguments.address, "quic_perf")?.await?;
    let mut stream = connection.open_uni().await?;
    let block: Vec<u8> = (0..BLOCK_BYTES).map(|at| (at * 31 + (at >> 8)) as u8).collect();
    let (start, mut bytes) = (Instant::now(), 0_u64);
    // A path that takes nothing must not hold the sender.
    let end = tokio::time::Instant::from_std(start + arguments.time);
    while let Ok(written) = tokio::time::timeout_at(end, stream.write(&block)).await {
        bytes += written? as u64;
        if start.elapsed() >= arguments.time {
            break;
        }
    }
    stream.finish()?;
    // What a slow path has not taken after as long again is left. The receiver closes when it has everything.
    let arrived = tokio::time::timeout(arguments.time, connection.closed()).await;
    if arrived.is_err() {
        connection.close(VarInt::from_u32(1), b"");
    }
    let path = connection.stats().path;
    println!(
        "{{\"role\":\"send\",\"bytes\":{bytes},\"seconds\":{:.6},\"packets_sent\":{},\"packets_lost\":{}}}",
        start.elapsed().as_secs_f64(),
        path.sent_packets,
        path.lost_packets
    );
    if bytes == 0 {
        bail!("nothing was taken");
    }
    endpoint.wait_idle().await;
    Ok(())
}

/// Takes every certificate: the peer is a process of the same measurement.
#[derive(Debug)]
struct Trusting(Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
