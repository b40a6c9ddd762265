//! The cryptography, named in one place.

use rustls::crypto::{CryptoProvider, ring};
use std::sync::{Arc, LazyLock};

/// Returns the cryptography of ring, which needs only the C compiler that zstd needs already.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(ring::default_provider()));
    PROVIDER.clone()
}
