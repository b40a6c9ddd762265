//! TLS of a server: its certificate, the authority of its clients, and handshakes with strangers.

use crate::answers;
use crate::files::{authorities, certificates, key, wrong};
use crate::guests::Guests;
use crate::limited::Limited;
use crate::provider::{provider, read_ahead};
use crate::secured::{Guarded, Secured};
use crate::watched::{Look, Watched};
use arc_swap::ArcSwap;
use reverb_core::{Error, Result};
use rustls::pki_types::TrustAnchor;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ConfigBuilder, ServerConfig, WantsVerifier};
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

// limit (Connections and calls): handshake of TLS with a client, before anything is known of it | {HANDSHAKE_TIME},
// {HANDSHAKE_BYTES:bytes} | closed
/// Maximum time of a handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Maximum number of bytes that a client sends before the handshake is done.
const HANDSHAKE_BYTES: usize = 64 << 10;
/// Maximum time for a refused client to read why.
const LINGER_TIME: Duration = Duration::from_secs(1);
/// First byte of a client that speaks TLS.
const TLS_HANDSHAKE: u8 = 0x16;
/// The name of HTTP/2 in a handshake.
pub(crate) const H2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";

/// The files of a server's TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate in PEM, followed by those between it and its authority.
    pub cert: PathBuf,
    /// Its private key in PEM.
    pub key: PathBuf,
    /// The authorities that sign the certificates of clients. `None` lets clients in without a certificate.
    pub client_ca: Option<PathBuf>,
}

/// A port of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// For clients: HTTP/2, and with a `client_ca` only for those that it has signed.
    Grpc,
    /// For browsers and monitoring: HTTP/1.1, never with a certificate of the client.
    Http,
}

/// TLS of a server, for both of its ports. The files are read again when they change.
#[derive(Debug)]
pub struct ServerTls {
    files: TlsFiles,
    loaded: ArcSwap<Loaded>,
    guests: Guests,
    watched: Watched,
    failed_handshakes: AtomicU64,
}

/// What was read from the files.
#[derive(Debug)]
struct Loaded {
    grpc: Arc<ServerConfig>,
    http: Arc<ServerConfig>,
    clients: Option<Clients>,
}

/// How certificates of clients are checked.
#[derive(Debug, Clone)]
struct Clients {
    authorities: Vec<TrustAnchor<'static>>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], with the file, if one cannot be read or the key does not fit the certificate.
    pub fn new(files: TlsFiles) -> Result<Self> {
        let watched = Watched::new(files.paths());
        let loaded = ArcSwap::from_pointee(Loaded::read(&files)?);
        Ok(Self { files, loaded, guests: Guests::default(), watched, failed_handshakes: AtomicU64::new(0) })
    }

    /// Makes the handshake on a connection that was just accepted, before `wrap` is called on it. A client that speaks no
    /// TLS is told so.
    ///
    /// # Errors
    /// Why the connection was refused. Its end has been told.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: TcpStream,
        port: Port,
        wrap: impl FnOnce(TcpStream) -> S,
    ) -> io::Result<Secured<S>> {
        let greeted = tokio::time::timeout(HANDSHAKE_TIME, self.greet(stream, port, wrap)).await;
        greeted.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
    }

    async fn greet<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut stream: TcpStream,
        port: Port,
        wrap: impl FnOnce(TcpStream) -> S,
    ) -> io::Result<Secured<S>> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let attempt = Attempt(&self.failed_handshakes);
        if first[0] != TLS_HANDSHAKE {
            match port {
                Port::Grpc => answers::to_grpc(&mut stream).await?,
                Port::Http => answers::to_http(&mut stream).await?,
            }
            linger(stream).await;
            return Err(io::Error::new(ErrorKind::InvalidData, "the client does not speak TLS"));
        }
        let loaded = self.loaded.load_full();
        let config = if port == Port::Grpc { &loaded.grpc } else { &loaded.http };
        let stranger = Limited::new(read_ahead(wrap(stream)), HANDSHAKE_BYTES);
        let accepted = TlsAcceptor::from(config.clone()).accept(stranger).into_fallible().await;
        let mut stream = match accepted {
            Ok(stream) => stream,
            Err((error, stranger)) => {
                linger(stranger).await;
                return Err(error);
            }
        };
        if port == Port::Grpc && stream.get_ref().1.alpn_protocol() != Some(H2) {
            linger(stream).await;
            return Err(io::Error::new(ErrorKind::InvalidData, "the client does not speak HTTP/2"));
        }
        attempt.succeeds();
        stream.get_mut().0.lift();
        let stay = self.guests.add(stream.get_ref().1.peer_certificates());
        // It may have been let in by authorities that were replaced meanwhile.
        self.end_strangers(&loaded);
        Ok(Secured::Tls(Box::new(Guarded { stream, stay })))
    }

    /// Reads the files again if they have changed. Those that do not fit are refused with one warning, and the ones
    /// before stay in use.
    pub(crate) fn look(&self) -> Look<()> {
        match self.watched.look(|| Loaded::read(&self.files)) {
            Look::Same => Look::Same,
            Look::Read(loaded) => {
                let before = self.loaded.swap(Arc::new(loaded));
                tracing::info!("the certificates of the server were read again from {}", self.files.cert.display());
                self.end_strangers(&before);
                Look::Read(())
            }
            Look::Refused(error) => {
                tracing::warn!("the certificates of the server have changed, and the ones before stay in use: {error}");
                Look::Refused(error)
            }
        }
    }

    /// Returns how often changed files were refused.
    pub fn failed_reloads(&self) -> u64 {
        self.watched.failures()
    }

    /// Returns how many handshakes have failed. Connections on which the client has sent nothing are not counted: a probe
    /// of the port sends nothing.
    pub fn failed_handshakes(&self) -> u64 {
        self.failed_handshakes.load(Relaxed)
    }

    /// Ends the connections whose clients the authorities of now do not know, if those were others before.
    fn end_strangers(&self, before: &Loaded) {
        let now = self.loaded.load();
        let (Some(before), Some(now)) = (&before.clients, &now.clients) else { return };
        if before.authorities == now.authorities {
            return;
        }
        let ended = self.guests.check(&*now.verifier);
        if ended > 0 {
            tracing::warn!(ended, "connections ended whose clients no authority knows any more: {ended}");
        }
    }
}

/// A handshake that a client has begun. It counts as failed if it is dropped before it succeeds, also when it took too
/// long or gave way to another one.
struct Attempt<'a>(&'a AtomicU64);

impl Attempt<'_> {
    fn succeeds(self) {
        std::mem::forget(self);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

impl TlsFiles {
    fn paths(&self) -> Vec<PathBuf> {
        [&self.cert, &self.key].into_iter().chain(&self.client_ca).cloned().collect()
    }
}

impl Loaded {
    fn read(files: &TlsFiles) -> Result<Self> {
        let clients = files.client_ca.as_ref().map(|path| {
            let roots = authorities(path)?;
            let authorities = roots.roots.clone();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
            Ok::<_, Error>(Clients { authorities, verifier: verifier.map_err(|error| wrong(path, &error))? })
        });
        let clients = clients.transpose()?;
        let grpc = match &clients {
            Some(clients) => files.config(|builder| builder.with_client_cert_verifier(clients.verifier.clone()), H2)?,
            None => files.config(|builder| builder.with_no_client_auth(), H2)?,
        };
        let http = files.config(|builder| builder.with_no_client_auth(), HTTP_1)?;
        Ok(Self { grpc, http, clients })
    }
}

type Builder<State> = ConfigBuilder<ServerConfig, State>;

impl TlsFiles {
    fn config(
        &self,
        check_clients: impl FnOnce(Builder<WantsVerifier>) -> Builder<rustls::server::WantsServerCert>,
        protocol: &[u8],
    ) -> Result<Arc<ServerConfig>> {
        let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| Error::Internal(format!("TLS: {error}")))?;
        let made = check_clients(builder).with_single_cert(certificates(&self.cert)?, key(&self.key)?);
        let misfit = |error| wrong(&self.cert, &format!("with the key {}: {error}", self.key.display()));
        let mut config = made.map_err(misfit)?;
        config.alpn_protocols = vec![protocol.to_vec()];
        // Connections last, so each has a handshake of its own, in which its client is checked.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}

/// Lets a refused client read what it was sent: a socket that is closed with unread bytes would throw that away.
async fn linger(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let unread = async {
        stream.shutdown().await?;
        while stream.read(&mut [0; 1024]).await? > 0 {}
        io::Result::Ok(())
    };
    let _done = tokio::time::timeout(LINGER_TIME, unread).await;
}
