//! The cryptography, and what makes it fast, named in one place.

use rustls::CipherSuite;
use rustls::crypto::{CryptoProvider, ring};
use std::sync::{Arc, LazyLock};
use tokio::io::{AsyncRead, BufReader};

/// Bytes that are read at once from a socket below TLS.
const READ_AHEAD: usize = 64 << 10;

/// Returns the cryptography of ring, which needs only the C compiler that zstd needs already. AES with 128 bits comes first,
/// as in Go and in browsers: it is as good as unbreakable, and takes less time than with 256.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        let mut provider = ring::default_provider();
        provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
        Arc::new(provider)
    });
    PROVIDER.clone()
}

/// Reads more of a socket at once than rustls, which asks for 4 KiB each time.
pub fn read_ahead<S: AsyncRead>(stream: S) -> BufReader<S> {
    BufReader::with_capacity(READ_AHEAD, stream)
}
