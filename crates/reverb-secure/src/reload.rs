//! What a server reads again: the files of its TLS, and those of tokens.

use crate::access::Access;
use crate::audit::Value;
use crate::server::ServerTls;
use crate::watched::Look;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

// limit (Connections and calls): certificates, keys, authorities and tokens of a server that are replaced | read again
// within {} | those that do not fit: a warning, and the ones before stay
/// Time between two looks.
const LOOK_PAUSE: Duration = Duration::from_secs(5);

const CERTIFICATES: &str = "certificates";
const TOKENS: &str = "tokens";

/// The files that a server reads again when they change.
#[derive(Debug, Clone, Default)]
pub struct Reloads {
    /// Those of TLS.
    pub tls: Option<Arc<ServerTls>>,
    /// Those of tokens.
    pub access: Option<Arc<Access>>,
}

impl Reloads {
    /// Whether there is anything to look at.
    pub fn has_files(&self) -> bool {
        self.tls.is_some() || self.access.is_some()
    }

    /// Looks at the files at once, and reads those that have changed. Blocks meanwhile.
    pub fn look(&self) {
        if let Some(tls) = &self.tls {
            self.note(CERTIFICATES, &tls.look());
        }
        if let Some(access) = &self.access {
            self.note(TOKENS, &access.look());
        }
    }

    /// Looks at the files from time to time, until `closed` completes.
    pub async fn watch(self, closed: impl Future<Output = ()>) {
        let mut closed = pin!(closed);
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_PAUSE) => {}
                () = &mut closed => return,
            }
            let this = self.clone();
            let _looked = tokio::task::spawn_blocking(move || this.look()).await;
        }
    }

    /// Returns how often changed files were refused, by what they are.
    pub fn failed_reloads(&self) -> [(&'static str, u64); 2] {
        let of_tls = self.tls.as_ref().map_or(0, |tls| tls.failed_reloads());
        let of_tokens = self.access.as_ref().map_or(0, |access| access.failed_reloads());
        [(CERTIFICATES, of_tls), (TOKENS, of_tokens)]
    }

    fn note<T>(&self, files: &str, look: &Look<T>) {
        let result = match look {
            Look::Same => return,
            Look::Read(_) => "ok",
            Look::Refused(_) => "refused",
        };
        if let Some(access) = &self.access {
            access.audit().write("reload", &[("files", Value::Text(files)), ("result", Value::Text(result))]);
        }
    }
}
