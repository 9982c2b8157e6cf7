//! `digestd healthcheck`: for containers that have no other tool.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Global, out, session};
use crate::lifecycle::Exit;

/// Below the time that orchestrators give a check.
const TIMEOUT: Duration = Duration::from_secs(4);
/// The answer is a few words; more is not from us.
const MAX_ANSWER_BYTES: u64 = 64 * 1024;

pub(super) async fn run(global: &Global) -> anyhow::Result<Exit> {
    let config = session::configure(global)?;
    let addr = reachable(config.listen);
    match tokio::time::timeout(TIMEOUT, ask(addr)).await {
        Ok(Ok(answer)) if answer.status == 200 => {
            out::data(answer.body.trim());
            Ok(Exit::Ok)
        }
        Ok(Ok(answer)) => Ok(unwell(&format!("{addr} answered {}: {}", answer.status, answer.body.trim()))),
        Ok(Err(error)) => Ok(unwell(&format!("{addr}: {error:#}"))),
        Err(_) => Ok(unwell(&format!("{addr} did not answer within {} s", TIMEOUT.as_secs()))),
    }
}

fn unwell(what: &str) -> Exit {
    out::note(format_args!("not healthy: {what}"));
    Exit::ProblemFound
}

/// Nobody can connect to “any address”; the replica is on this machine.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

struct Answer {
    status: u16,
    body: String,
}

/// One request of HTTP/1.0, whose answer ends with the connection.
async fn ask(addr: SocketAddr) -> anyhow::Result<Answer> {
    let mut stream = TcpStream::connect(addr).await.context("connecting")?;
    let request = format!("GET /healthz HTTP/1.0\r\nHost: {addr}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.context("asking")?;
    let mut bytes = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut bytes).await.context("reading the answer")?;
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let Some(status) = head.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse().ok()) else {
        bail!("the answer is not HTTP");
    };
    Ok(Answer { status, body: body.to_owned() })
}
