//! The clients that were let in by their certificates, and how they end when their authority is gone.

use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::task::Context;
use tokio::sync::oneshot;

/// The connections that are open because of a certificate.
#[derive(Debug, Default)]
pub struct Guests(Mutex<Vec<Guest>>);

#[derive(Debug)]
struct Guest {
    /// The certificates that the client has shown, its own first.
    chain: Vec<CertificateDer<'static>>,
    since: UnixTime,
    /// Its drop ends the connection.
    stays: oneshot::Sender<()>,
}

/// Whether a connection may stay open.
#[derive(Debug)]
pub enum Stay {
    /// Its client needed no certificate.
    Always,
    /// As long as the authority of its client's certificate stays.
    While(oneshot::Receiver<()>),
    /// No longer.
    Ended,
}

impl Guests {
    /// Adds a connection, by the certificates that its client has shown, if it has.
    pub fn add(&self, chain: Option<&[CertificateDer<'static>]>) -> Stay {
        let Some(chain) = chain else { return Stay::Always };
        let (stays, stay) = oneshot::channel();
        let chain = chain.iter().cloned().map(CertificateDer::into_owned).collect();
        let mut guests = self.0.lock();
        guests.retain(|guest| !guest.stays.is_closed());
        guests.push(Guest { chain, since: UnixTime::now(), stays });
        Stay::While(stay)
    }

    /// Ends the connections that would not be let in any more, and returns how many there were. A certificate that has
    /// expired since then ends no connection.
    pub fn check(&self, verifier: &dyn ClientCertVerifier) -> usize {
        let mut guests = self.0.lock();
        guests.retain(|guest| !guest.stays.is_closed());
        let is_known = |guest: &Guest| {
            let shown = guest.chain.split_first();
            shown.is_some_and(|(own, more)| verifier.verify_client_cert(own, more, guest.since).is_ok())
        };
        let (known, strangers) = std::mem::take(&mut *guests).into_iter().partition::<Vec<_>, _>(is_known);
        *guests = known;
        // All at once: a client whose first connection has ended must not find that its second one still serves it.
        strangers.len()
    }
}

impl Stay {
    /// Fails once the client may not stay. Wakes the task of `cx` when that happens.
    pub fn check(&mut self, cx: &mut Context<'_>) -> Result<()> {
        if let Self::While(stay) = self
            && Pin::new(stay).poll(cx).is_ready()
        {
            *self = Self::Ended;
        }
        match self {
            Self::Ended => {
                Err(Error::new(ErrorKind::ConnectionAborted, "the authority of the client's certificate is gone"))
            }
            Self::Always | Self::While(_) => Ok(()),
        }
    }
}
