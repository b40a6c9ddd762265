//! A listener before a server that can hold all bytes back, as a network or a process that has stopped does.

use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes bytes on as long as it is open. Bytes that came while it was closed are passed on later.
pub struct Faucet {
    pub port: u16,
    is_open: Arc<watch::Sender<bool>>,
}

impl Faucet {
    /// Listens on a free port, before a server on this one.
    pub async fn before(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_open = Arc::new(watch::Sender::new(true));
        let sender = is_open.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(pass(from_client, to_server, sender.subscribe()));
                tokio::spawn(pass(from_server, to_client, sender.subscribe()));
            }
        });
        Self { port, is_open }
    }

    pub fn close(&self) {
        self.is_open.send_replace(false);
    }

    pub fn open(&self) {
        self.is_open.send_replace(true);
    }
}

/// Ends without a word if either side has gone.
async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mut is_open: watch::Receiver<bool>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if is_open.wait_for(|is_open| *is_open).await.is_err() || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
