//! Certificates and keys in PEM files, and marks by which a change of a file is noticed.

use reverb_core::{Error, Result};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

// limit (Connections and calls): file of certificates, a key, authorities or tokens | {:bytes} | `InvalidArgumentError`; a
// running server keeps what it has
/// Maximum size of a file.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Reads a chain of certificates, that of the owner first.
///
/// # Errors
/// [`Error::InvalidArgument`], with the path.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = read(path)?;
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| wrong(path, &format!("expected certificates in PEM: {error}")))?;
    if found.is_empty() {
        return Err(wrong(path, &"expected certificates in PEM, found none"));
    }
    Ok(found)
}

/// Reads a private key without a password.
///
/// # Errors
/// [`Error::InvalidArgument`], with the path and without the contents.
pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(&read(path)?)
        .map_err(|error| wrong(path, &format!("expected a private key in PEM without a password: {error}")))
}

/// Reads the authorities that sign certificates of the other end.
///
/// # Errors
/// [`Error::InvalidArgument`], with the path.
pub fn authorities(path: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| wrong(path, &error))?;
    }
    Ok(roots)
}

/// Reads a file of certificates, a key or tokens. Anything else at its path, such as a pipe, could hold the reader up for
/// good.
///
/// # Errors
/// [`Error::InvalidArgument`], with the path.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let read = || {
        let meta = std::fs::metadata(path)?;
        if !meta.is_file() && !meta.is_dir() {
            return Err(io::Error::other("expected a file, found a pipe, a socket or a device"));
        }
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| wrong(path, &error))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(wrong(path, &format!("expected a file of at most {MAX_FILE_BYTES} bytes")));
    }
    Ok(bytes)
}

/// Returns the error of a file. `why` never contains what is in it.
pub fn wrong(path: &Path, why: &dyn Display) -> Error {
    Error::invalid(format!("{}: {why}", path.display()))
}

/// What a file looked like: where it really lies, since Kubernetes swaps a link, which file it is, its time and size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark(Option<(PathBuf, u64, i64, i64, u64)>);

impl Mark {
    /// Looks at a file. Files that cannot be looked at are all alike.
    pub fn of(path: &Path) -> Self {
        let looked = || -> std::io::Result<_> {
            let resolved = std::fs::canonicalize(path)?;
            let meta = std::fs::metadata(&resolved)?;
            Ok((resolved, meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.size()))
        };
        Self(looked().ok())
    }

    /// Whether it is of the same file, whatever was written to that.
    pub fn is_same_file(&self, other: &Self) -> bool {
        let file = |mark: &Self| mark.0.as_ref().map(|(path, inode, ..)| (path.clone(), *inode));
        file(self) == file(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_files_of_a_usual_size_are_read() {
        let path = std::env::temp_dir().join(format!("reverb-files-{}", std::process::id()));
        let why = || read(&path).expect_err("it is no such file").to_string();
        let file = File::create(&path).expect("the folder can be written");
        file.set_len(MAX_FILE_BYTES).expect("it has room");
        assert_eq!(read(&path).expect("it is not too large").len() as u64, MAX_FILE_BYTES);
        file.set_len(MAX_FILE_BYTES + 1).expect("it has room");
        assert!(why().contains("at most 4194304 bytes"), "{}", why());
        std::fs::remove_file(&path).expect("it was made");
        assert!(why().contains("No such file"), "{}", why());
        let _socket = UnixListener::bind(&path).expect("the folder can be written");
        assert!(why().contains("expected a file, found a pipe"), "{}", why());
        std::fs::remove_file(&path).expect("it was made");
        assert!(read(Path::new("/dev/zero")).is_err(), "a device without an end");
    }
}
