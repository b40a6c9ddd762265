//! A connection of the HTTP port.

use super::places::Activity;
use socket2::SockRef;
use std::io::{IoSlice, Result};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

// limit (HTTP, metrics and logs): time for which an HTTP answer may be unread, on Linux | {} | closed
/// Maximum time for which a client may leave an answer unread.
const UNREAD_TIME: Duration = Duration::from_secs(30);

/// A connection that ends when it is dropped, even if a process that was forked meanwhile has a copy of it.
#[derive(Debug)]
pub struct Stream {
    socket: TcpStream,
    activity: Arc<Activity>,
}

impl Stream {
    /// Wraps a connection, and limits the time for which its client may not read. Bytes that move are noted.
    pub fn new(socket: TcpStream, activity: Arc<Activity>) -> Self {
        let _without_delay = socket.set_nodelay(true);
        #[cfg(target_os = "linux")]
        let _where_supported = SockRef::from(&socket).set_tcp_user_timeout(Some(UNREAD_TIME));
        Self { socket, activity }
    }

    fn noted<T>(&self, moved: Poll<T>) -> Poll<T> {
        if moved.is_ready() {
            self.activity.note();
        }
        moved
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _closed = SockRef::from(&self.socket).shutdown(Shutdown::Both);
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let read = Pin::new(&mut self.socket).poll_read(cx, buffer);
        self.noted(read)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.noted(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, parts);
        self.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
