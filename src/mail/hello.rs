//! From the socket to the moment at which lettre takes over: TCP, TLS, greeting, STARTTLS.
//!
//! STARTTLS is done here because a byte that follows the relay's consent before the handshake was
//! put there by somebody else, and must not be read as an answer from inside the tunnel.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::lenient::{RawReply, ReplyParser};
use super::settings::{SmtpSettings, TlsMode};
use super::stream::Io;
use super::tls::Tls;
use crate::domain::reply::{Phase, RelayFailure, RelayFailureKind};

/// Silence after which the kernel asks whether the relay is still there.
const KEEPALIVE: Duration = Duration::from_mins(1);

/// Connects, encrypts as configured, and reads the greeting. EHLO is still to come.
pub(super) async fn connect(settings: &SmtpSettings, tls: Option<&Tls>) -> Result<Io, RelayFailure> {
    let timeouts = settings.timeouts;
    let tcp = within(timeouts.connect_total, tcp(settings))
        .await
        .map_err(|error| RelayFailure::io(Phase::Connect, &error))?;
    match (settings.tls, tls) {
        (TlsMode::Implicit, Some(tls)) => {
            let mut io = handshake(tcp, tls, timeouts.tls).await?;
            greeting(&mut io, timeouts.greeting).await?;
            Ok(io)
        }
        (TlsMode::StartTls, Some(tls)) => {
            let mut io = Io::Plain(tcp);
            greeting(&mut io, timeouts.greeting).await?;
            let tcp = start_tls(io, settings).await?;
            handshake(tcp, tls, timeouts.tls).await
        }
        _ => {
            let mut io = Io::Plain(tcp);
            greeting(&mut io, timeouts.greeting).await?;
            Ok(io)
        }
    }
}

async fn tcp(settings: &SmtpSettings) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the relay's name has no address");
    for addr in tokio::net::lookup_host((settings.host.as_str(), settings.port)).await? {
        match within(settings.timeouts.connect, TcpStream::connect(addr)).await {
            Ok(tcp) => {
                tcp.set_nodelay(true)?;
                let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE);
                socket2::SockRef::from(&tcp).set_tcp_keepalive(&keepalive)?;
                return Ok(tcp);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn handshake(tcp: TcpStream, tls: &Tls, limit: Duration) -> Result<Io, RelayFailure> {
    within(limit, tls.handshake(tcp))
        .await
        .map(|stream| Io::Tls(Box::new(stream)))
        .map_err(|error| RelayFailure::io(Phase::Tls, &error))
}

async fn greeting(io: &mut Io, limit: Duration) -> Result<(), RelayFailure> {
    let reply = read(io, limit).await.map_err(|error| RelayFailure::io(Phase::Greeting, &error))?;
    if reply.code / 100 == 2 { Ok(()) } else { Err(RelayFailure::refused(Phase::Greeting, &reply)) }
}

/// EHLO and STARTTLS in the clear, up to the relay's consent.
async fn start_tls(mut io: Io, settings: &SmtpSettings) -> Result<TcpStream, RelayFailure> {
    let limit = settings.timeouts.hello;
    let hello = format!("EHLO {}\r\n", settings.helo);
    let offers = ask(&mut io, &hello, limit).await.map_err(|error| RelayFailure::io(Phase::Ehlo, &error))?;
    if !offers.is_ok() {
        return Err(RelayFailure::refused(Phase::Ehlo, &offers));
    }
    if !offers.lines.iter().skip(1).any(|line| line.trim().eq_ignore_ascii_case("STARTTLS")) {
        let error = "the relay does not offer STARTTLS".to_owned();
        return Err(RelayFailure::new(Phase::Tls, RelayFailureKind::Insecure, error));
    }
    let consent = match ask(&mut io, "STARTTLS\r\n", limit).await {
        Ok(reply) => reply,
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let error = "something followed the relay's consent to STARTTLS".to_owned();
            return Err(RelayFailure::new(Phase::Tls, RelayFailureKind::Insecure, error));
        }
        Err(error) => return Err(RelayFailure::io(Phase::Tls, &error)),
    };
    match io {
        Io::Plain(tcp) if consent.code == 220 => Ok(tcp),
        _ => Err(RelayFailure::refused(Phase::Tls, &consent)),
    }
}

async fn ask(io: &mut Io, command: &str, limit: Duration) -> io::Result<RawReply> {
    within(limit, io.write_all(command.as_bytes())).await?;
    read(io, limit).await
}

/// Reads one reply; a byte after it is an error.
async fn read(io: &mut Io, limit: Duration) -> io::Result<RawReply> {
    let (mut parser, mut strict, mut replies) = (ReplyParser::default(), Vec::new(), VecDeque::new());
    let bad = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let reading = async {
        let mut room = [0; 1024];
        loop {
            let n = io.read(&mut room).await?;
            if n == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the relay closed the connection"));
            }
            let pushed = parser.push(&room[..n], &mut strict, &mut replies);
            if let Some(reply) = replies.pop_front() {
                let alone = pushed.is_ok() && replies.is_empty() && parser.is_between_replies();
                return if alone {
                    Ok(reply)
                } else {
                    Err(bad("the relay said more than it was asked".into()))
                };
            }
            pushed.map_err(|error| bad(Box::<dyn std::error::Error + Send + Sync>::from(error)))?;
        }
    };
    within(limit, reading).await
}

async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(limit, work)
        .await
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, format!("not within {limit:?}"))))
}
