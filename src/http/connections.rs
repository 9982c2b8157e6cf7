//! A listener that keeps idle and surplus connections from using up the process.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// Open connections at most; below the usual limit of 1,024 open files with room for everything else.
const MAX_CONNECTIONS: usize = 512;
/// How long a connection may say nothing. Longer than the usual scrape interval, so that scrapes reuse theirs.
const MAX_SILENCE: Duration = Duration::from_secs(75);

/// A listener that accepts up to [`MAX_CONNECTIONS`]; more wait in the system's queue.
#[derive(Debug)]
pub(super) struct Limited {
    listener: TcpListener,
    free: Arc<Semaphore>,
}

/// A connection that ends when it has said nothing for [`MAX_SILENCE`].
pub(super) struct Impatient {
    stream: TcpStream,
    silence: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl Limited {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, free: Arc::new(Semaphore::new(MAX_CONNECTIONS)) }
    }
}

/// Who asks. Behind a proxy it is the proxy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub IpAddr);

impl Connected<IncomingStream<'_, Limited>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Limited>) -> Self {
        Self(stream.remote_addr().ip())
    }
}

impl Listener for Limited {
    type Io = Impatient;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Impatient, SocketAddr) {
        let permit = loop {
            if let Ok(permit) = self.free.clone().acquire_owned().await {
                break permit;
            }
            // Only a closed semaphore refuses, and nobody closes this one.
            tokio::task::yield_now().await;
        };
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let silence = Box::pin(tokio::time::sleep(MAX_SILENCE));
        (Impatient { stream, silence, _permit: permit }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl AsyncRead for Impatient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Ready(read) => {
                self.silence.as_mut().reset(Instant::now() + MAX_SILENCE);
                Poll::Ready(read)
            }
            Poll::Pending => match self.silence.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                Poll::Pending => Poll::Pending,
            },
        }
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
