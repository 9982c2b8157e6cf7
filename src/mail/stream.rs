//! The byte stream under a session: deadlines, few writes, and replies as they really were.
//!
//! lettre drives the dialogue and sees an orderly relay. What it writes is held back until it
//! waits for an answer, so that a body leaves together with its final dot; what it reads has been
//! put in order by the lenient parser, which keeps the true replies for the session.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lettre::transport::smtp::client::AsyncTokioStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tokio_rustls::client::TlsStream;

use super::lenient::{RawReply, ReplyError, ReplyParser};

/// What is handed to the kernel at once, in bytes. Before each slice the stream looks whether the
/// relay has already answered.
const SLICE_BYTES: usize = 64 * 1024;
/// A wait that ends so late was overslept. Longer than the delays of a busy runtime.
const OVERSLEPT: Duration = Duration::from_millis(250);
/// Room for one read, in bytes. Replies to one pipelined envelope fit.
const READ_BYTES: usize = 2048;

/// The socket, plain or encrypted.
#[derive(Debug)]
pub(super) enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Io {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
        }
    }
}

impl AsyncRead for Io {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}

/// What session and stream share.
struct Wire {
    /// Written by lettre, not yet handed to the kernel from `sent` on.
    out: Vec<u8>,
    sent: usize,
    /// Whether the last byte of the current exchange was handed over, or may have been.
    left: bool,
    write_limit: Duration,
    read_limit: Duration,
    /// When the current wait began. A trickle of bytes does not start it anew.
    since: Option<Instant>,
    /// Until when a wait goes on whose end was overslept.
    last_look: Option<Instant>,
    parser: ReplyParser,
    /// Replies in the form for lettre, not yet read by it from `strict_at` on.
    strict: Vec<u8>,
    strict_at: usize,
    replies: VecDeque<RawReply>,
    /// What came after the last line that could be read. Told once lettre has read up to there.
    spoilt: Option<ReplyError>,
    /// After a refused EHLO lettre would say QUIT and wait; it reads the end instead.
    ends_after_refusal: bool,
    ended: bool,
}

/// The session's hold on its stream.
#[derive(Clone)]
pub(super) struct Control(Arc<Mutex<Wire>>);

impl Control {
    fn wire(&self) -> MutexGuard<'_, Wire> {
        // Nothing panics while holding the lock; if it did, the connection is dropped anyway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an exchange: at most `write_limit` until everything is written, then at most
    /// `read_limit` until the answer is whole.
    pub(super) fn begin(&self, write_limit: Duration, read_limit: Duration) {
        let mut wire = self.wire();
        (wire.write_limit, wire.read_limit) = (write_limit, read_limit);
        (wire.since, wire.last_look) = (None, None);
        wire.left = false;
    }

    /// The oldest reply that was not taken yet.
    pub(super) fn take_reply(&self) -> Option<RawReply> {
        self.wire().replies.pop_front()
    }

    /// Whether the relay has said more than it was asked.
    pub(super) fn has_unasked(&self) -> bool {
        let wire = self.wire();
        !wire.replies.is_empty() || !wire.parser.is_between_replies()
    }

    /// Whether the last byte of the exchange has left, or may have.
    pub(super) fn has_left(&self) -> bool {
        self.wire().left
    }

    /// Whether a refusal ends the stream for lettre; see [`Wire::ends_after_refusal`].
    pub(super) fn end_after_refusal(&self, ends: bool) {
        self.wire().ends_after_refusal = ends;
    }
}

/// The stream that lettre is given.
pub(super) struct SmtpStream {
    io: Io,
    peer: SocketAddr,
    control: Control,
    timer: Option<Pin<Box<Sleep>>>,
}

impl fmt::Debug for SmtpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmtpStream").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl SmtpStream {
    /// A stream on which the greeting has been read already; lettre, which wants to read one, is
    /// given another.
    pub(super) fn new(io: Io) -> io::Result<(Self, Control)> {
        let peer = io.tcp().peer_addr()?;
        let control = Control(Arc::new(Mutex::new(Wire {
            out: Vec::new(),
            sent: 0,
            left: false,
            write_limit: Duration::ZERO,
            read_limit: Duration::ZERO,
            since: None,
            last_look: None,
            parser: ReplyParser::default(),
            strict: b"220 relay\r\n".to_vec(),
            strict_at: 0,
            replies: VecDeque::new(),
            spoilt: None,
            ends_after_refusal: false,
            ended: false,
        })));
        Ok((Self { io, peer, control: control.clone(), timer: None }, control))
    }
}

impl AsyncTokioStream for SmtpStream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

impl AsyncRead for SmtpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { io, control, timer, .. } = self.get_mut();
        let mut wire = control.wire();
        if wire.give(buf) || wire.ended {
            return Poll::Ready(Ok(()));
        }
        ready!(wire.drain(io, timer, cx))?;
        loop {
            match wire.receive(io, cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(_)) if wire.give(buf) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    let limit = wire.read_limit;
                    return wire.wait(timer, limit, "answer", cx).map(Err);
                }
            }
        }
    }
}

impl AsyncWrite for SmtpStream {
    fn poll_write(self: Pin<&mut Self>, _cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.control.wire().out.extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    /// Does nothing: reading is what sends.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Does nothing: dropping is what closes.
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Wire {
    /// Gives lettre what is ready; whether anything was.
    fn give(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let ready = &self.strict[self.strict_at..];
        let n = ready.len().min(buf.remaining());
        buf.put_slice(&ready[..n]);
        self.strict_at += n;
        if self.strict_at == self.strict.len() {
            self.strict.clear();
            self.strict_at = 0;
        }
        n > 0
    }

    /// Hands everything written to the kernel, unless the relay speaks out of turn. What has not left
    /// when this fails is forgotten: a later read must not send the rest, and the final dot with it.
    fn drain(
        &mut self,
        io: &mut Io,
        timer: &mut Option<Pin<Box<Sleep>>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.out.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let result = match self.poll_drain(io, cx) {
            Poll::Ready(result) => result,
            Poll::Pending => {
                let limit = self.write_limit;
                Err(ready!(self.wait(timer, limit, "room to write", cx)))
            }
        };
        self.out.clear();
        self.sent = 0;
        (self.since, self.last_look) = (None, None);
        Poll::Ready(result)
    }

    fn poll_drain(&mut self, io: &mut Io, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.out.len() {
            // An answer before the question is whole, or the end of the stream, means that what
            // is left must not be sent: the final dot above all.
            if let Poll::Ready(received) = self.receive(io, cx) {
                return Poll::Ready(Err(match received {
                    Ok(0) => io::Error::new(io::ErrorKind::UnexpectedEof, "the relay closed the connection"),
                    Ok(_) => io::Error::new(io::ErrorKind::InvalidData, "the relay spoke out of turn"),
                    Err(error) => error,
                }));
            }
            let rest = &self.out[self.sent..];
            let slice = &rest[..rest.len().min(SLICE_BYTES)];
            let is_last = slice.len() == rest.len();
            match ready!(Pin::new(&mut *io).poll_write(cx, slice)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(n) => self.sent += n,
                Err(error) => {
                    // The kernel takes nothing when it fails; an encrypted stream may have sent
                    // some records of the slice before.
                    self.left |= is_last && matches!(io, Io::Tls(_));
                    return Poll::Ready(Err(error));
                }
            }
            self.left |= self.sent == self.out.len();
        }
        Pin::new(io).poll_flush(cx)
    }

    /// Reads once; how many bytes came, 0 at the end.
    fn receive(&mut self, io: &mut Io, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if let Some(error) = self.spoilt {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        let mut room = [0; READ_BYTES];
        let mut buf = ReadBuf::new(&mut room);
        ready!(Pin::new(io).poll_read(cx, &mut buf))?;
        let bytes = buf.filled();
        self.spoilt = self.parser.push(bytes, &mut self.strict, &mut self.replies).err();
        if let Some(error) = self.spoilt
            && self.strict.is_empty()
        {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        self.ended |= self.ends_after_refusal && self.replies.iter().any(RawReply::is_refusal);
        Poll::Ready(Ok(bytes.len()))
    }

    /// Ready with the error once the wait has lasted for the limit. A process that was frozen or starved wakes
    /// up long after it, with an answer in the kernel that nobody has looked at: it waits a moment more, once.
    fn wait(
        &mut self,
        timer: &mut Option<Pin<Box<Sleep>>>,
        limit: Duration,
        what: &str,
        cx: &mut Context<'_>,
    ) -> Poll<io::Error> {
        let end = *self.since.get_or_insert_with(Instant::now) + limit;
        let deadline = self.last_look.unwrap_or(end);
        let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        ready!(timer.as_mut().poll(cx));
        let now = Instant::now();
        if self.last_look.is_none() && now >= end + OVERSLEPT {
            self.last_look = Some(now + OVERSLEPT);
            timer.as_mut().reset(now + OVERSLEPT);
            ready!(timer.as_mut().poll(cx));
        }
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, format!("no {what} within {limit:?}")))
    }
}
