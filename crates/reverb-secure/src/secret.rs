//! Texts that nobody may see, and where a client has its token from.

use crate::files::wrong;
use reverb_core::{Error, Result};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

// limit (Connections and calls): token of a client | {:bytes} | `InvalidArgumentError`
/// Maximum size of a token in bytes, with the white space around it.
const MAX_TOKEN_BYTES: usize = 4096;

/// A text that is not shown. Only [`Secret::reveal`] returns it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Returns the text, for the other end of a connection and for nobody else.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

/// Where a client has its token from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// The program, or its environment.
    Given(Secret),
    /// A file, which is read for each connection: it may change.
    File(PathBuf),
}

impl TokenSource {
    /// Returns the token without the white space around it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the file cannot be read, or if the text cannot be a token. It names the file, and has
    /// nothing of the text.
    pub fn read(&self) -> Result<Secret> {
        match self {
            Self::Given(text) => token(text.reveal().as_bytes())
                .map_err(|why| Error::invalid(format!("the token that the client was given: {why}"))),
            Self::File(path) => {
                let bytes = read(path).map_err(|error| wrong(path, &format!("the file of the token: {error}")))?;
                token(&bytes).map_err(|why| wrong(path, &format!("the file of the token: {why}")))
            }
        }
    }
}

/// Reads a file, which may be one without an end.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_TOKEN_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn token(bytes: &[u8]) -> std::result::Result<Secret, String> {
    let expected = "expected a token of visible ASCII characters without spaces";
    if bytes.len() > MAX_TOKEN_BYTES {
        return Err(format!("{expected}, got more than {MAX_TOKEN_BYTES} bytes"));
    }
    let text = bytes.trim_ascii();
    if text.is_empty() {
        return Err(format!("{expected}, got nothing"));
    }
    match std::str::from_utf8(text) {
        Ok(text) if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(text.to_owned().into()),
        _ => Err(format!("{expected}, got others")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str) -> Result<Secret> {
        TokenSource::Given(Secret::from(text.to_owned())).read()
    }

    #[test]
    fn white_space_around_a_token_does_not_count() {
        for text in ["rvb_abc", " rvb_abc\n", "\r\n\trvb_abc"] {
            assert_eq!(given(text).unwrap().reveal(), "rvb_abc");
        }
    }

    #[test]
    fn what_cannot_be_a_token_is_refused_without_being_shown() {
        for text in ["", " \n", "two words", "line\nline", "b\u{fc}cher", "nul\0nul", &"long".repeat(1025)] {
            let error = given(text).unwrap_err().to_string();
            assert!(error.contains("expected a token"), "{error}");
            assert!(text.trim().is_empty() || !error.contains(text.trim()), "{error}");
        }
    }

    #[test]
    fn a_file_is_read_each_time_and_named_if_it_cannot_be() {
        let path = std::env::temp_dir().join(format!("reverb-token-{}", std::process::id()));
        let source = TokenSource::File(path.clone());
        let named = |source: &TokenSource| {
            let error = source.read().unwrap_err().to_string();
            assert!(error.contains(path.to_str().unwrap()), "{error}");
            error
        };
        assert!(named(&source).contains("No such file"));
        for text in ["first-token\n", "second-token"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(source.read().unwrap().reveal(), text.trim());
        }
        std::fs::write(&path, "\n").unwrap();
        assert!(named(&source).contains("got nothing"));
        std::fs::remove_file(&path).unwrap();
        let endless = TokenSource::File("/dev/zero".into()).read().unwrap_err().to_string();
        assert!(endless.contains("4096 bytes"), "{endless}");
    }

    #[test]
    fn a_secret_is_not_shown() {
        let source = TokenSource::Given(Secret::from("rvb_hidden".to_owned()));
        assert_eq!(format!("{source:?}"), "Given(***)");
    }
}
