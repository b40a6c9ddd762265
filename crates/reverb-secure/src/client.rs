//! TLS of a client: whom it trusts, and its own certificate.

use crate::files::{authorities, certificates, key, wrong};
use crate::provider::{provider, read_ahead};
use crate::server::H2;
use reverb_core::{Error, Result};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig, ClientConnection, InvalidMessage, RootCertStore};
use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// What a client knows of TLS: files, which are read for each connection, and a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// The authorities that sign the certificates of servers. `None` means those of the operating system.
    pub ca: Option<PathBuf>,
    /// The certificate of the client, for servers that ask for one.
    pub cert: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
    /// The name in the certificate of the server. `None` means the host of the address.
    pub server_name: Option<String>,
}

/// Makes handshakes with one server.
#[derive(Debug, Clone)]
pub struct Connector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    /// The address of the server, for errors.
    peer: Arc<str>,
    refusal: Arc<OnceLock<Error>>,
}

impl ClientTls {
    /// Reads the files. `host` is that of the address; `peer` names the server in errors.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], with the file, if one cannot be read or the key does not fit the certificate.
    pub fn connector(&self, host: &str, peer: &str) -> Result<Connector> {
        let name = self.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned())
            .map_err(|error| Error::invalid(format!("`{name}` is not a name for a certificate: {error}")))?;
        let roots = self.ca.as_deref().map_or_else(authorities_of_system, authorities)?;
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(internal)?.with_root_certificates(roots);
        let mut config = match (&self.cert, &self.key) {
            (Some(cert), Some(own_key)) => builder
                .with_client_auth_cert(certificates(cert)?, key(own_key)?)
                .map_err(|error| wrong(cert, &format!("with the key {}: {error}", own_key.display())))?,
            (None, None) => builder.with_no_client_auth(),
            _ => return Err(Error::invalid("TLS of a client: a certificate needs its key, and a key its certificate")),
        };
        config.alpn_protocols = vec![H2.to_vec()];
        Ok(Connector { config: Arc::new(config), name, peer: peer.into(), refusal: Arc::default() })
    }
}

impl Connector {
    /// Makes the handshake.
    ///
    /// # Errors
    /// [`Error::Unauthenticated`] if one end does not trust the other, [`Error::InvalidArgument`] if the port does not
    /// speak TLS or serves something else, and [`Error::Unavailable`] if the connection was lost.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> Result<ClientStream<S>> {
        let connecting = TlsConnector::from(self.config.clone()).connect(self.name.clone(), read_ahead(stream));
        let stream = connecting.await.map_err(|error| failed(&error, &self.peer))?;
        if stream.get_ref().1.alpn_protocol() != Some(H2) {
            return Err(other_protocol(&self.peer));
        }
        Ok(ClientStream { stream, peer: self.peer.clone(), refusal: self.refusal.clone() })
    }

    /// Returns why the server has refused the client after a handshake. With TLS 1.3, a server that does not accept the
    /// client's certificate says so only then.
    pub fn refusal(&self) -> Option<Error> {
        self.refusal.get().cloned()
    }
}

/// The authorities of the operating system.
fn authorities_of_system() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(Error::invalid(
            "this machine has no authorities that sign certificates; name a file of them by TLS(ca=) or REVERB_CA",
        ));
    }
    Ok(roots)
}

fn internal(error: rustls::Error) -> Error {
    Error::Internal(format!("TLS: {error}"))
}

fn other_protocol(peer: &str) -> Error {
    Error::invalid(format!(
        "the port of {peer} speaks TLS, but not gRPC; clients use `server.port`, not `server.http_port`"
    ))
}

/// Says why a handshake failed.
fn failed(error: &io::Error, peer: &str) -> Error {
    let Some(cause) = cause_of(error) else {
        return Error::Unavailable(format!("the TLS handshake with the server at {peer} failed: {error}"));
    };
    let hint = match cause {
        rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol) => return other_protocol(peer),
        rustls::Error::AlertReceived(alert) => return Error::Unauthenticated(text_of(*alert, peer)),
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            return Error::invalid(format!(
                "the server at {peer} does not speak TLS; grpcs:// is for servers with TLS, and the address of this one \
                 is without it"
            ));
        }
        rustls::Error::InvalidCertificate(_) => {
            "; TLS(ca=) or REVERB_CA names the file of its authority, and TLS(server_name=) another name of the server"
        }
        _ => "",
    };
    Error::Unauthenticated(format!("the server at {peer} has not proven who it is: {cause}{hint}"))
}

fn cause_of(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|cause| cause.downcast_ref())
}

/// Says why a server has refused a client, by its alert.
fn text_of(alert: AlertDescription, peer: &str) -> String {
    use AlertDescription as Alert;
    match alert {
        Alert::CertificateRequired => format!(
            "the server at {peer} asks for a certificate of the client; TLS(cert=, key=), or REVERB_CERT and REVERB_KEY, \
             name one"
        ),
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied
        | Alert::DecryptError => {
            format!("the server at {peer} does not accept the certificate of this client ({alert:?})")
        }
        _ => format!("the server at {peer} has refused the TLS handshake ({alert:?})"),
    }
}

/// A connection of a client over TLS.
#[derive(Debug)]
pub struct ClientStream<S> {
    stream: TlsStream<BufReader<S>>,
    peer: Arc<str>,
    refusal: Arc<OnceLock<Error>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, peer, refusal } = self.get_mut();
        Pin::new(stream).poll_read(cx, buf).map_err(|error| {
            if let Some(rustls::Error::AlertReceived(alert)) = cause_of(&error) {
                refusal.get_or_init(|| Error::Unauthenticated(text_of(*alert, peer)));
            }
            error
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Whether a port answers the beginning of a handshake as servers with TLS do. Nothing is checked.
///
/// # Errors
/// Those of the connection.
pub async fn speaks_tls(host: &str, port: u16) -> io::Result<bool> {
    /// First bytes of the answers to a handshake: an alert, or the handshake of the server.
    const ANSWERS: [u8; 2] = [0x15, 0x16];
    let mut stream = TcpStream::connect((host, port)).await?;
    stream.write_all(&first_message()?).await?;
    let mut first = [0];
    stream.read_exact(&mut first).await?;
    Ok(ANSWERS.contains(&first[0]))
}

/// The first message of a handshake, which trusts nobody.
fn first_message() -> io::Result<Vec<u8>> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let config = builder.map(|builder| builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    let mut connection =
        config.and_then(|config| ClientConnection::new(Arc::new(config), name)).map_err(io::Error::other)?;
    let mut message = Vec::new();
    connection.write_tls(&mut message)?;
    Ok(message)
}
