//! A connection whose peer is a stranger until the handshake is done, so that what it may send is limited.

use std::io::{Error, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Passes bytes on, and fails when a stranger has sent too many.
#[derive(Debug)]
pub struct Limited<S> {
    stream: S,
    /// Number of bytes that may still arrive. `None` once the handshake is done.
    left: Option<usize>,
}

impl<S> Limited<S> {
    /// Lets a stranger send this many bytes.
    pub fn new(stream: S, bytes: usize) -> Self {
        Self { stream, left: Some(bytes) }
    }

    /// Ends the limit, because the peer is no longer a stranger.
    pub fn lift(&mut self) {
        self.left = None;
    }

    /// Returns the connection.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Limited<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let (Some(left), Poll::Ready(Ok(()))) = (&mut self.left, &read) {
            let Some(rest) = left.checked_sub(buf.filled().len() - before) else {
                return Poll::Ready(Err(Error::other("the handshake has too many bytes")));
            };
            *left = rest;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Limited<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
