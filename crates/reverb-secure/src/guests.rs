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
        // They end only now. A check takes long, and a client whose first connection has ended may call on its second one.
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::client::danger::HandshakeSignatureValid;
    use rustls::server::danger::ClientCertVerified;
    use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, SignatureScheme};
    use std::task::Waker;

    /// Knows one certificate. Fails if a connection has ended while others are still to be checked.
    #[derive(Debug)]
    struct Verifier {
        known: CertificateDer<'static>,
        stays: Mutex<Vec<Stay>>,
    }

    impl Verifier {
        fn num_staying(&self) -> usize {
            let mut context = Context::from_waker(Waker::noop());
            self.stays.lock().iter_mut().filter_map(|stay| stay.check(&mut context).ok()).count()
        }
    }

    impl ClientCertVerifier for Verifier {
        fn root_hint_subjects(&self) -> &[DistinguishedName] {
            &[]
        }

        fn verify_client_cert(
            &self,
            own: &CertificateDer<'_>,
            _more: &[CertificateDer<'_>],
            _now: UnixTime,
        ) -> std::result::Result<ClientCertVerified, rustls::Error> {
            assert_eq!(self.num_staying(), 4);
            if *own == self.known {
                Ok(ClientCertVerified::assertion())
            } else {
                Err(CertificateError::UnknownIssuer.into())
            }
        }

        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _certificate: &CertificateDer<'_>,
            _signature: &DigitallySignedStruct,
        ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
            unreachable!("no handshake")
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
            self.verify_tls12_signature(message, certificate, signature)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            Vec::new()
        }
    }

    #[test]
    fn strangers_end_after_all_were_checked() {
        let [known, stranger] = [1, 2].map(|byte| CertificateDer::from(vec![byte]));
        let guests = Guests::default();
        let shown = [&stranger, &known, &stranger, &known].map(|own| guests.add(Some(std::slice::from_ref(own))));
        let verifier = Verifier { known, stays: Mutex::new(shown.into()) };
        assert_eq!(guests.check(&verifier), 2);
        assert_eq!(verifier.num_staying(), 2);
    }
}
