//! The file of tokens: TOML, with the SHA-256 of each token and never the token itself. No error quotes a value that may
//! be a token by mistake.

use crate::files;
use crate::role::Role;
use reverb_core::{Error, Result};
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Size of a SHA-256.
pub const HASH_BYTES: usize = 32;
/// Maximum number of characters in the name of a token.
const MAX_NAME: usize = 64;
const KEYS: [&str; 3] = ["name", "role", "sha256"];
const EXPECTED: &str = "expected [[token]] with name, role and sha256";

/// A token as the file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name, unique in the file, without anything that could disturb a log or a page.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// Its SHA-256.
    pub hash: [u8; HASH_BYTES],
}

/// Reads the tokens of a file. One without entries is right, and lets nobody in.
///
/// # Errors
/// [`Error::InvalidArgument`] with the path and the line.
pub fn read(path: &Path) -> Result<Vec<Entry>> {
    let text = String::from_utf8(files::read(path)?)
        .map_err(|_| Error::invalid(format!("{}: expected TOML in UTF-8, found other bytes", path.display())))?;
    of_text(&text, &path.display().to_string())
}

/// Reads the tokens of a text, which errors call by its name.
///
/// # Errors
/// [`Error::InvalidArgument`] with the name and the line.
pub fn of_text(text: &str, name: &str) -> Result<Vec<Entry>> {
    parse(text).map_err(|Wrong { at, why }| {
        let line = text.bytes().take(at.start).filter(|byte| *byte == b'\n').count() + 1;
        Error::invalid(format!("{name}, line {line}: {why}"))
    })
}

/// What is wrong, and where.
struct Wrong {
    at: Range<usize>,
    why: String,
}

fn wrong<T>(at: Range<usize>, why: impl Into<String>) -> std::result::Result<T, Wrong> {
    Err(Wrong { at, why: why.into() })
}

fn parse(text: &str) -> std::result::Result<Vec<Entry>, Wrong> {
    let no_toml =
        |error: toml::de::Error| Wrong { at: error.span().unwrap_or_default(), why: format!("not TOML; {EXPECTED}") };
    let file = DeTable::parse(text).map_err(no_toml)?.into_inner();
    let mut entries: Vec<Entry> = Vec::new();
    for (key, value) in &file {
        if key.get_ref() != "token" {
            return wrong(key.span(), format!("unknown key {}; {EXPECTED}", quoted(key.get_ref())));
        }
        let Some(tokens) = value.get_ref().as_array() else {
            return wrong(value.span(), format!("`token` is not a list; {EXPECTED}"));
        };
        for token in tokens.iter() {
            let entry = entry_of(token)?;
            if entries.iter().any(|other| other.name == entry.name) {
                return wrong(token.span(), format!("another token has the name `{}` already", entry.name));
            }
            if let Some(other) = entries.iter().find(|other| other.hash == entry.hash) {
                return wrong(token.span(), format!("`{}` is the same token as `{}`", entry.name, other.name));
            }
            entries.push(entry);
        }
    }
    Ok(entries)
}

fn entry_of(token: &Spanned<DeValue<'_>>) -> std::result::Result<Entry, Wrong> {
    let Some(fields) = token.get_ref().as_table() else {
        return wrong(token.span(), format!("`token` is not a table; {EXPECTED}"));
    };
    if let Some((key, _)) = fields.iter().find(|(key, _)| !KEYS.contains(&key.get_ref().as_ref())) {
        return wrong(key.span(), format!("unknown key {}; {EXPECTED}", quoted(key.get_ref())));
    }
    let text = |key: &str| match fields.get(key).map(|value| (value.get_ref().as_str(), value.span())) {
        Some((Some(text), at)) => Ok((text, at)),
        Some((None, at)) => wrong(at, format!("`{key}` of a token is not a text")),
        None => wrong(token.span(), format!("a token has no `{key}`; {EXPECTED}")),
    };
    let (name, at) = text("name")?;
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_plain) {
        return wrong(at, format!("expected a name of 1 to {MAX_NAME} letters, digits and `.`, `_`, `-` and `@`"));
    }
    let (role, at) = text("role")?;
    let Some(role) = Role::of(role) else {
        return wrong(at, format!("expected the role view, use or admin of token `{name}`, got {}", quoted(role)));
    };
    let (digits, at) = text("sha256")?;
    let Some(hash) = hash_of(digits) else {
        return wrong(at, format!("expected 64 hexadecimal digits as the sha256 of token `{name}`"));
    };
    Ok(Entry { name: name.to_owned(), role, hash })
}

fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "._-@".contains(letter)
}

/// A text for an error: short, and without control characters.
fn quoted(text: &str) -> String {
    const MAX_QUOTED: usize = 20;
    format!("{:?}", text.chars().take(MAX_QUOTED).collect::<String>())
}

fn hash_of(digits: &str) -> Option<[u8; HASH_BYTES]> {
    let mut hash = [0; HASH_BYTES];
    if digits.len() != 2 * HASH_BYTES || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (place, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * place..2 * place + 2], 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &str) -> String {
        parse(text).map_err(|wrong| wrong.why).expect_err("the file is wrong")
    }

    #[test]
    fn tokens_have_names_roles_and_hashes() {
        let text = format!(
            "# Of the cluster.\n[[token]]\nname = \"actors\"\nrole = \"use\"\nsha256 = \"{}\"\n\n[[token]]\nname = \
             'me@home'\nrole = 'admin'\nsha256 = '{}'",
            "0A".repeat(32),
            "ff".repeat(32)
        );
        let entry = |name: &str, role, byte| Entry { name: name.into(), role, hash: [byte; HASH_BYTES] };
        let entries = parse(&text).map_err(|wrong| wrong.why);
        assert_eq!(entries, Ok(vec![entry("actors", Role::Use, 10), entry("me@home", Role::Admin, 255)]));
        assert_eq!(parse("# nobody\n").map_err(|wrong| wrong.why), Ok(Vec::new()));
    }

    #[test]
    fn errors_say_what_is_wrong_and_never_quote_a_token() {
        let hash = "0a".repeat(32);
        let entry = |name: &str, role: &str, hash: &str| {
            format!("[[token]]\nname = \"{name}\"\nrole = \"{role}\"\nsha256 = \"{hash}\"\n")
        };
        let two = |other: &str, hash: &str| entry("actors", "use", &"0a".repeat(32)) + &entry(other, "use", hash);
        let secret = "rvb_secretsecretsecretsecret";
        for (text, expected) in [
            (entry("actors", "root", &hash), "expected the role view, use or admin of token `actors`, got \"root\""),
            (entry("actors", "use", secret), "64 hexadecimal digits as the sha256 of token `actors`"),
            (entry("actors", "use", &hash[1..]), "64 hexadecimal digits"),
            (entry("a\\u001b[31m", "use", &hash), "expected a name of"),
            (entry("", "use", &hash), "expected a name of"),
            (two("actors", &"0b".repeat(32)), "another token has the name `actors`"),
            (two("learner", &hash), "`learner` is the same token as `actors`"),
            (entry("a", "use", &hash) + "groups = 1\n", "unknown key \"groups\""),
            (format!("token = \"{secret}\"\n"), "`token` is not a list"),
            (format!("tokens = [\"{secret}\"]\n"), "unknown key \"tokens\""),
            (format!("[[token]]\nname = \"a\"\nrole = \"use\"\nsha256 = [\"{secret}\"]"), "`sha256` of a token is not"),
            (format!("token = [\"{secret}\"]"), "`token` is not a table"),
            (format!("token = {secret}"), "not TOML"),
            ("[[token]]\nname = \"a\"\nrole = \"use\"".to_owned(), "a token has no `sha256`"),
        ] {
            let why = why(&text);
            assert!(why.contains(expected), "{text}: {why}");
            assert!(!why.contains("secret"), "{why}");
        }
    }

    #[test]
    fn an_error_names_the_file_and_the_line() {
        let path = std::env::temp_dir().join(format!("reverb-token-file-{}", std::process::id()));
        std::fs::write(&path, "\n\n[[token]]\nname = 5\n").expect("the folder can be written");
        let error = read(&path).expect_err("the name is no text").to_string();
        std::fs::remove_file(&path).expect("it was written");
        assert_eq!(error, format!("{}, line 4: `name` of a token is not a text", path.display()));
        assert!(read(&path).expect_err("it is gone").to_string().starts_with(&path.display().to_string()));
    }
}
