//! Who did what, as lines of JSON: for the logger `reverb.audit`, and for a file.

use crate::files::{Mark, wrong};
use parking_lot::Mutex;
use reverb_core::Result;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The target of the events that log lines of the audit.
pub const AUDIT: &str = "reverb_audit";

/// Where lines go beside the log.
#[derive(Debug, Default)]
pub struct Audit {
    file: Option<Mutex<Opened>>,
    has_failed: AtomicBool,
}

#[derive(Debug)]
struct Opened {
    path: PathBuf,
    mark: Mark,
    file: File,
}

/// A value of a field.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// A text, of whomever.
    Text(&'a str),
    /// A number.
    Number(u64),
}

/// A field of a line: its name and its value.
pub type Entry<'a> = (&'static str, Value<'a>);

impl Audit {
    /// Appends lines to a file, too. The file is made if there is none.
    ///
    /// # Errors
    /// [`reverb_core::Error::InvalidArgument`], with the path, if the file cannot be written.
    pub fn to_file(path: PathBuf) -> Result<Self> {
        let (mark, file) = open(&path).map_err(|error| wrong(&path, &error))?;
        Ok(Self { file: Some(Mutex::new(Opened { path, mark, file })), has_failed: AtomicBool::new(false) })
    }

    /// Writes a line.
    pub fn write(&self, event: &'static str, entries: &[Entry<'_>]) {
        let now = OffsetDateTime::now_utc().format(&Rfc3339).unwrap_or_default();
        let mut line = format!("{{\"ts\":\"{now}\",\"event\":\"{event}\"");
        for (name, value) in entries {
            let _infallible = match value {
                Value::Text(text) => write!(line, ",\"{name}\":\"{}\"", escaped(text)),
                Value::Number(number) => write!(line, ",\"{name}\":{number}"),
            };
        }
        line.push('}');
        tracing::info!(target: AUDIT, "{line}");
        line.push('\n');
        let Some(file) = &self.file else { return };
        let mut opened = file.lock();
        if let Err(error) = opened.append(line.as_bytes())
            && !self.has_failed.swap(true, Relaxed)
        {
            tracing::error!("the audit log {} cannot be written: {error}", opened.path.display());
        }
    }
}

impl Opened {
    /// Appends a line to the file that has the path now: another program may have moved the one before away.
    fn append(&mut self, line: &[u8]) -> std::io::Result<()> {
        if !Mark::of(&self.path).is_same_file(&self.mark) {
            (self.mark, self.file) = open(&self.path)?;
        }
        // In one call, so that no other process writes in between.
        self.file.write_all(line)
    }
}

fn open(path: &Path) -> std::io::Result<(Mark, File)> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    Ok((Mark::of(path), file))
}

/// A text within a string of JSON: ASCII alone, so that it neither ends the line nor drives a terminal.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut units = [0; 2];
    for letter in text.chars() {
        match letter {
            '"' | '\\' => escaped.extend(['\\', letter]),
            ' '..='~' => escaped.push(letter),
            _ => {
                for unit in letter.encode_utf16(&mut units) {
                    let _infallible = write!(escaped, "\\u{unit:04x}");
                }
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_forges_a_line() {
        assert_eq!(
            escaped("a\"b\\c\nd\u{1b}[31m\u{202e}\u{1f600}"),
            "a\\\"b\\\\c\\u000ad\\u001b[31m\\u202e\\ud83d\\ude00"
        );
    }

    #[test]
    fn lines_are_appended_and_a_file_that_was_moved_is_opened_again() {
        let path = std::env::temp_dir().join(format!("reverb-audit-{}", std::process::id()));
        let moved = path.with_extension("1");
        let audit = Audit::to_file(path.clone()).expect("the folder can be written");
        audit.write("reset", &[("table", Value::Text("a\n{\"event\":\"forged\"}"))]);
        std::fs::rename(&path, &moved).expect("it was made");
        audit.write("delete", &[("count", Value::Number(3))]);
        let [before, after] = [&moved, &path].map(|path| {
            let text = std::fs::read_to_string(path).expect("it was written");
            std::fs::remove_file(path).expect("it was written");
            text
        });
        assert!(
            before.starts_with("{\"ts\":\"2")
                && before.ends_with("\"event\":\"reset\",\"table\":\"a\\u000a{\\\"event\\\":\\\"forged\\\"}\"}\n"),
            "{before}"
        );
        assert_eq!((before.lines().count(), after.lines().count()), (1, 1));
        assert!(after.ends_with("\"event\":\"delete\",\"count\":3}\n"), "{after}");
    }
}
