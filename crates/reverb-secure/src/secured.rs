//! A connection of a server, with TLS or without.

use crate::guests::Stay;
use crate::limited::Limited;
use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio_rustls::server::TlsStream;

/// A connection of a server.
#[derive(Debug)]
pub enum Secured<S> {
    /// As the socket has it.
    Plain(S),
    /// Over TLS, after the handshake.
    Tls(Box<Guarded<S>>),
}

/// A connection over TLS, and whether its client may stay.
#[derive(Debug)]
pub struct Guarded<S> {
    pub(crate) stream: TlsStream<Limited<BufReader<S>>>,
    pub(crate) stay: Stay,
}

impl<S: AsyncRead> Secured<S> {
    /// Returns the connection below.
    pub fn get_ref(&self) -> &S {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(guarded) => guarded.stream.get_ref().0.get_ref().get_ref(),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Secured<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(guarded) => {
                guarded.stay.check(cx)?;
                Pin::new(&mut guarded.stream).poll_read(cx, buf)
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Secured<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(guarded) => Pin::new(&mut guarded.stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Self::Tls(guarded) => Pin::new(&mut guarded.stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(guarded) => guarded.stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(guarded) => Pin::new(&mut guarded.stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(guarded) => Pin::new(&mut guarded.stream).poll_shutdown(cx),
        }
    }
}
