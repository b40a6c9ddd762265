//! Who makes a call, where a server asks for that.

use reverb_core::Result;
use reverb_secure::{Access, AuditEntry, AuditValue, Guest, Role};
use reverb_service::Peer;
use std::sync::Arc;
use tonic::Request;

/// The caller of a call that was let in, attached to its request.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Who it is, and what it may do.
    pub guest: Arc<Guest>,
    /// What has let it in.
    pub access: Arc<Access>,
    peer: Option<Arc<Peer>>,
}

impl Caller {
    /// A caller over the connection of a peer.
    pub fn new(guest: Arc<Guest>, peer: Option<Arc<Peer>>, access: Arc<Access>) -> Self {
        Self { guest, access, peer }
    }

    /// Writes into the audit what the caller did.
    pub fn note(&self, event: &'static str, what: &[AuditEntry<'_>]) {
        let text = AuditValue::Text;
        let (address, name) = self.peer.as_ref().map_or(("", ""), |peer| (peer.address.as_str(), peer.name()));
        let mut entries = vec![
            ("who", text(self.guest.token().unwrap_or_default())),
            ("proof", text(self.guest.proof.kind())),
            ("role", text(self.guest.role.name())),
            ("address", text(address)),
            ("client", text(name)),
        ];
        entries.extend_from_slice(what);
        self.access.audit().write(event, &entries);
    }
}

/// Returns the name of the token of a call, if the server asks for tokens.
pub fn token_of<T>(request: &Request<T>) -> Option<String> {
    caller_of(request).and_then(|caller| caller.guest.token().map(str::to_owned))
}

/// Whether a caller may see numbers only.
pub fn may_only_view<T>(request: &Request<T>) -> bool {
    caller_of(request).is_some_and(|caller| caller.guest.role < Role::Use)
}

fn caller_of<T>(request: &Request<T>) -> Option<&Caller> {
    request.extensions().get::<Caller>()
}

/// What is done for a caller, to be written into the audit once its result is known.
#[derive(Debug)]
pub struct Audited {
    caller: Option<Caller>,
    event: &'static str,
    table: String,
}

impl Audited {
    /// What a request does to a table, which is empty for the server as a whole.
    pub fn new<T>(request: &Request<T>, event: &'static str, table: &str) -> Self {
        let caller = caller_of(request).cloned();
        // Without an audit, nothing is kept of it.
        let table = if caller.is_some() { table.to_owned() } else { String::new() };
        Self { caller, event, table }
    }

    /// Writes the result, and how many items it concerns.
    pub fn done<T>(self, count: usize, result: Result<T>) -> Result<T> {
        if let Some(caller) = &self.caller {
            let kind = result.as_ref().err().map_or("ok", |error| error.kind());
            let (table, count) = (AuditValue::Text(&self.table), AuditValue::Number(count as u64));
            caller.note(self.event, &[("table", table), ("count", count), ("result", AuditValue::Text(kind))]);
        }
        result
    }
}
