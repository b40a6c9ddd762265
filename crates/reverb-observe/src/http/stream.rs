//! A connection of the HTTP port.

use socket2::SockRef;
use std::io::{IoSlice, Result};
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

// limit (HTTP, metrics and logs): time for which an HTTP answer may be unread, on Linux | {} | closed
/// Maximum time for which a client may leave an answer unread.
const UNREAD_TIME: Duration = Duration::from_secs(30);

/// A connection that ends when it is dropped, even if a process that was forked meanwhile has a copy of it.
#[derive(Debug)]
pub struct Stream(TcpStream);

impl Stream {
    /// Wraps a connection, and limits the time for which its client may not read.
    pub fn new(stream: TcpStream) -> Self {
        let _without_delay = stream.set_nodelay(true);
        #[cfg(target_os = "linux")]
        let _where_supported = SockRef::from(&stream).set_tcp_user_timeout(Some(UNREAD_TIME));
        Self(stream)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _closed = SockRef::from(&self.0).shutdown(Shutdown::Both);
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
