//! The folder that checkpoints lie in: which of its entries are checkpoints, their order, and what new ones are called.

use super::disk::{Disk, storage_error};
use super::sidecar::SIDECAR;
use reverb_core::{Error, Result};
use std::io;
use std::path::{Path, PathBuf};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

/// The files of a checkpoint.
pub const TABLES: &str = "tables.tfrecord";
/// Items, table by table.
pub const ITEMS: &str = "items.tfrecord";
/// Chunks, each once.
pub const CHUNKS: &str = "chunks.tfrecord";
/// Empty, written last: without it a folder is no checkpoint.
pub const DONE: &str = "DONE";
/// What a checkpoint is called while it is written, before its name.
const SAVING: &str = ".saving-";
/// What it is called while it is removed.
const REMOVING: &str = ".removing-";

/// A checkpoint in its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// When it was made, if its name says so.
    pub time: Option<OffsetDateTime>,
    /// Whether it has our own file, so that we may remove it.
    pub is_ours: bool,
}

/// The checkpoints in `root`, newest first. Those whose names are no times come last, the greatest name first.
///
/// # Errors
/// [`Error::Storage`] if a folder cannot be read. A root that is missing has none.
pub fn checkpoints(disk: &dyn Disk, root: &Path) -> Result<Vec<Entry>> {
    let mut found = Vec::new();
    for name in names(disk, root)? {
        // Names of ours in the making begin with a dot.
        if name.starts_with('.') {
            continue;
        }
        if let Some(files) = files_of(disk, &root.join(&name))?
            && files.iter().any(|file| file == DONE)
        {
            let is_ours = files.iter().any(|file| file == SIDECAR);
            found.push(Entry { time: OffsetDateTime::parse(&name, &Rfc3339).ok(), name, is_ours });
        }
    }
    found.sort_by(|a, b| (b.time, &b.name).cmp(&(a.time, &a.name)));
    Ok(found)
}

fn names(disk: &dyn Disk, root: &Path) -> Result<Vec<String>> {
    match disk.list(root) {
        // A name that is not Unicode is none of ours.
        Ok(names) => Ok(names.into_iter().filter_map(|name| name.into_string().ok()).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(storage_error("cannot list", root, &error)),
    }
}

/// The names in a folder; `None` if it is none, or has gone.
pub fn files_of(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<String>>> {
    match disk.list(path) {
        Ok(names) => Ok(Some(names.iter().map(|name| name.to_string_lossy().into_owned()).collect())),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotADirectory | io::ErrorKind::NotFound) => Ok(None),
        Err(error) => Err(storage_error("cannot list", path, &error)),
    }
}

/// The name of a new checkpoint. It comes after all that are there: by time, and, for the reference, by its letters.
pub fn new_name(existing: &[Entry], now: OffsetDateTime) -> Result<String> {
    let step = Duration::NANOSECOND;
    let mut time = existing.iter().filter_map(|entry| entry.time).max().map_or(now, |newest| now.max(newest + step));
    let greatest = existing.iter().filter(|entry| entry.time.is_some()).map(|entry| entry.name.as_str()).max();
    let name = format(time)?;
    match greatest {
        // The reference names by the local clock, and then sorts by letters: what it wrote east of here may look later.
        Some(greatest) if greatest >= name.as_str() => {
            let local =
                greatest.get(..19).and_then(|digits| OffsetDateTime::parse(&format!("{digits}Z"), &Rfc3339).ok());
            let local = local.ok_or_else(|| Error::Internal(format!("`{greatest}` is no time")))?;
            time = time.max(local + Duration::SECOND);
            format(time)
        }
        _ => Ok(name),
    }
}

/// As the reference writes times, in UTC and always with nine digits.
fn format(time: OffsetDateTime) -> Result<String> {
    let time = time.to_offset(time::UtcOffset::UTC);
    let whole = time.replace_nanosecond(0).map_err(|error| Error::Internal(error.to_string()))?;
    let text = whole.format(&Rfc3339).map_err(|error| Error::Internal(format!("the clock shows no date: {error}")))?;
    Ok(format!("{}.{:09}+00:00", text.trim_end_matches('Z'), time.nanosecond()))
}

/// Where the checkpoint `name` is written before it is complete.
pub fn saving_path(root: &Path, name: &str) -> PathBuf {
    root.join(format!("{SAVING}{name}"))
}

/// Removes what a process that was killed had begun to write or to remove. The caller holds the lock of the folder.
pub fn remove_leftovers(disk: &dyn Disk, root: &Path) -> Result<()> {
    for name in names(disk, root)? {
        if name.starts_with(SAVING) || name.starts_with(REMOVING) {
            remove_files(disk, &root.join(name))?;
        }
    }
    Ok(())
}

/// Removes a checkpoint, unless it holds files that do not belong there.
pub fn remove(disk: &dyn Disk, root: &Path, name: &str) -> Result<()> {
    let path = root.join(name);
    let Some(files) = files_of(disk, &path)? else { return Ok(()) };
    if let Some(foreign) = files.iter().find(|file| !is_ours(file)) {
        tracing::warn!("checkpoint {} is not removed, because `{foreign}` in it is none of its files", path.display());
        return Ok(());
    }
    // Under another name first: half of a checkpoint must not be found if the process is killed.
    let removing = root.join(format!("{REMOVING}{name}"));
    disk.rename(&path, &removing).map_err(|error| storage_error("cannot rename", &path, &error))?;
    remove_files(disk, &removing)
}

fn is_ours(file: &str) -> bool {
    [TABLES, ITEMS, CHUNKS, DONE, SIDECAR].contains(&file)
}

/// Removes a folder and the files of a checkpoint in it; with others in it the folder stays.
pub fn remove_files(disk: &dyn Disk, path: &Path) -> Result<()> {
    let Some(files) = files_of(disk, path)? else { return Ok(()) };
    for file in files.iter().filter(|file| is_ours(file)) {
        let file = path.join(file);
        disk.remove_file(&file).map_err(|error| storage_error("cannot remove", &file, &error))?;
    }
    if files.iter().all(|file| is_ours(file)) {
        disk.remove_dir(path).map_err(|error| storage_error("cannot remove", path, &error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> Entry {
        Entry { name: name.into(), time: OffsetDateTime::parse(name, &Rfc3339).ok(), is_ours: true }
    }

    #[test]
    fn a_new_name_comes_last_whatever_is_there() {
        let now = OffsetDateTime::parse("2026-03-04T05:06:07.08Z", &Rfc3339).unwrap();
        assert_eq!(new_name(&[], now).unwrap(), "2026-03-04T05:06:07.080000000+00:00");
        for there in [
            "2026-03-04T05:06:07.080000000+00:00",
            "2026-03-04T05:06:07.08+00:00",
            "2026-03-04T14:06:07.08+09:00",
            "2026-03-04T00:06:07.08-05:00",
            "2031-12-31T23:59:59+00:00",
            "2031-12-31T23:59:59.999999999-03:00",
        ] {
            let name = new_name(&[entry("later than all times"), entry(there)], now).unwrap();
            assert!(name.as_str() > there, "{name} {there}");
            assert!(entry(&name).time > entry(there).time, "{name} {there}");
        }
    }
}
