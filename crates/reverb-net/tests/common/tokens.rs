//! Servers that ask for tokens, and calls that present them.

use super::{MAX_MESSAGE_SIZE, TableHandle};
use prost::Message;
use reverb_net::replay_v1::proto::InfoRequest;
use reverb_net::server::{ListenOptions, Server};
use reverb_secure::{Access, Audit, Tokens, sha256_hex};
use reverb_service::Replay;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use tokio::runtime::Handle;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

/// A file of tokens: the role of each by its name, which is also in the token. Removed on drop.
pub struct TokensFile(PathBuf);

impl TokensFile {
    pub fn new(roles: &[(&str, &str)]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("reverb-test-tokens-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let file = Self(std::env::temp_dir().join(name));
        file.write(roles);
        file
    }

    /// Replaces the file by another one.
    pub fn write(&self, roles: &[(&str, &str)]) {
        let entry = |(name, role): &(&str, &str)| {
            let hash = sha256_hex(token(name).as_bytes());
            format!("[[token]]\nname = \"{name}\"\nrole = \"{role}\"\nsha256 = \"{hash}\"\n")
        };
        let next = self.0.with_extension("next");
        std::fs::write(&next, roles.iter().map(entry).collect::<String>()).unwrap();
        std::fs::rename(next, &self.0).unwrap();
    }

    pub fn access(&self) -> Access {
        Access::new(Some(Tokens::from_file(self.0.clone()).unwrap()), None, Audit::default())
    }

    pub fn server(&self, tables: Vec<TableHandle>) -> Server {
        let options = ListenOptions { access: Some(Arc::new(self.access())), ..ListenOptions::default() };
        let replay = Replay::new(tables, MAX_MESSAGE_SIZE).unwrap();
        Server::start(&Handle::current(), replay, &options, None).unwrap()
    }
}

impl Drop for TokensFile {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.0);
    }
}

pub fn token(name: &str) -> String {
    format!("rvb_secret-of-{name}-0123456789")
}

/// Returns a request with the token of this name; an empty one means none.
pub fn by<T>(name: &str, message: T) -> Request<T> {
    with_header(if name.is_empty() { String::new() } else { format!("Bearer {}", token(name)) }, message)
}

/// Returns a request with this value of the header for tokens, marked as our clients mark it.
pub fn with_header<T>(value: String, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if !value.is_empty() {
        let mut value: MetadataValue<Ascii> = value.parse().unwrap();
        value.set_sensitive(true);
        request.metadata_mut().insert("authorization", value);
    }
    request
}

/// Connects to an address as the server has it, over TCP or the Unix socket.
pub async fn channel(server: &Server, over_unix: bool) -> Channel {
    let address = match server.unix_path().filter(|_| over_unix) {
        Some(path) => format!("unix:{}", path.display()),
        None => format!("http://127.0.0.1:{}", server.port()),
    };
    Endpoint::from_shared(address).unwrap().connect().await.unwrap()
}

/// Calls any method with an empty message. Returns how it is refused, if at once.
pub async fn call(channel: &Channel, path: &str, request: Request<()>) -> Result<(), Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let path = path.parse().unwrap();
    let codec = tonic_prost::ProstCodec::<InfoRequest, Empty>::default();
    grpc.server_streaming(request.map(|()| InfoRequest {}), path, codec).await.map(drop)
}

/// An answer of which nothing is read.
#[derive(Clone, PartialEq, Message)]
pub struct Empty {}

pub fn is_refused(result: &Result<(), Status>) -> Option<Code> {
    let code = result.as_ref().err()?.code();
    matches!(code, Code::Unauthenticated | Code::PermissionDenied | Code::ResourceExhausted).then_some(code)
}
