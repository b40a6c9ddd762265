//! A connection of the server, with its peer attached.

use super::goodbye::LastBytes;
use crate::transport::socket::{Introduced, Socket};
use reverb_secure::Secured;
use reverb_service::{Connections, Departure, OpenConnection};
use std::io::{ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// A connection that is ready for calls.
#[derive(Debug)]
pub struct Connection {
    secured: Secured<Socket>,
    ending: Ending,
}

/// What tells how a connection ends.
#[derive(Debug)]
struct Ending {
    /// The entry among the connections of the server.
    entry: OpenConnection,
    /// What came last, as it was before TLS.
    last: LastBytes,
}

impl Ending {
    /// Notes what was read, which says how the connection ends.
    fn note(&mut self, read: &Result<()>, bytes: &[u8]) {
        self.entry.departure = match read {
            Ok(()) if !bytes.is_empty() => return self.last.add(bytes),
            Err(error) if error.kind() == ErrorKind::TimedOut => Departure::Stopped,
            Ok(()) | Err(_) if self.last.say_goodbye() => Departure::Closed,
            Ok(()) | Err(_) => Departure::Lost,
        };
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // The server has closed the connection before it has read its end.
        if self.entry.departure == Departure::Stopped && self.last.say_goodbye() {
            self.entry.departure = Departure::Closed;
        }
    }
}

impl Connection {
    /// Makes a socket one of the connections of a server, for as long as it is open.
    pub fn new(secured: Secured<Socket>, connections: &Arc<Connections>) -> Self {
        let entry = connections.add(&secured.get_ref().peer());
        Self { secured, ending: Ending { entry, last: LastBytes::default() } }
    }
}

impl Connected for Connection {
    /// The peer, which is attached to every request of the connection.
    type ConnectInfo = Introduced;

    fn connect_info(&self) -> Introduced {
        let socket = self.secured.get_ref();
        Introduced { peer: socket.peer(), passing: socket.passing() }
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let Self { secured, ending } = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(secured).poll_read(cx, buf);
        if let Poll::Ready(result) = &read {
            ending.note(result, &buf.filled()[before..]);
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.secured).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.secured).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.secured.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.secured).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.secured).poll_shutdown(cx)
    }
}
