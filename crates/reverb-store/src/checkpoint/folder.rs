//! The folder of checkpoints: which of its entries are checkpoints, their order, their names and their removal.

use super::sidecar::SIDECAR;
use crate::disk::{Disk, storage_error};
use reverb_core::{Error, Result};
use std::io;
use std::path::{Path, PathBuf};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

/// Name of the file of tables in a checkpoint.
pub const TABLES: &str = "tables.tfrecord";
/// Name of the file of items, ordered by table.
pub const ITEMS: &str = "items.tfrecord";
/// Name of the file of chunks, each once.
pub const CHUNKS: &str = "chunks.tfrecord";
/// Name of an empty file that is written last. A folder without it is not a checkpoint.
pub const DONE: &str = "DONE";
/// Prefix of the name of a checkpoint while it is written.
const SAVING: &str = ".saving-";
/// Prefix of the name of a checkpoint while it is removed.
const REMOVING: &str = ".removing-";
/// Most times that a folder is listed for a checkpoint that can be loaded. One more than there are damaged ones is enough
/// unless a server saves faster than its checkpoints can be read.
const MOST_LOOKS: usize = 1000;

/// A checkpoint in the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointEntry {
    /// Name of the checkpoint.
    pub name: String,
    /// Time of the save. `None` if the name is not a time.
    pub time: Option<OffsetDateTime>,
    /// Whether the checkpoint has a sidecar. Only such checkpoints are removed.
    pub is_ours: bool,
}

/// Returns the checkpoints in `root`, newest first. Those whose names are not times come last, in descending order.
///
/// # Errors
/// [`Error::Storage`] if a folder cannot be read. A missing root is not an error: it has no checkpoints.
pub fn checkpoints(disk: &dyn Disk, root: &Path) -> Result<Vec<CheckpointEntry>> {
    let mut found = Vec::new();
    for name in names(disk, root)? {
        // Names of checkpoints being written or removed begin with a dot.
        if name.starts_with('.') {
            continue;
        }
        if let Some(files) = files_of(disk, &root.join(&name))?
            && is_complete(&files)
        {
            let is_ours = files.iter().any(|file| file == SIDECAR);
            found.push(CheckpointEntry { time: time_of(&name), name, is_ours });
        }
    }
    found.sort_by(|a, b| (b.time, &b.name).cmp(&(a.time, &a.name)));
    Ok(found)
}

/// Loads the newest checkpoint in `root` that is not damaged. Returns its path and what `load` has returned, or `None` if
/// there is no checkpoint, and what is damaged, each with the damage.
///
/// A server may save meanwhile. What it has removed is not damaged, and its new checkpoints are found.
///
/// # Errors
/// Those of [`checkpoints`] and `load`; [`Error::DataLoss`] if all checkpoints are damaged.
#[expect(clippy::type_complexity, reason = "a path with what was made of it, and texts")]
pub fn load_newest<T>(
    disk: &dyn Disk,
    root: &Path,
    load: impl Fn(&Path) -> Result<T>,
) -> Result<(Option<(PathBuf, T)>, Vec<String>)> {
    let mut damaged: Vec<(String, String)> = Vec::new();
    let told = |damaged: Vec<(String, String)>| {
        damaged.into_iter().map(|(name, reason)| format!("{}: {reason}", root.join(name).display())).collect()
    };
    for _ in 0..MOST_LOOKS {
        let listed = checkpoints(disk, root)?;
        damaged.retain(|(name, _)| listed.iter().any(|entry| entry.name == *name));
        let is_new = |entry: &&CheckpointEntry| damaged.iter().all(|(name, _)| *name != entry.name);
        let Some(entry) = listed.iter().find(is_new) else { break };
        let path = root.join(&entry.name);
        match load(&path) {
            Ok(loaded) => return Ok((Some((path, loaded)), told(damaged))),
            Err(Error::DataLoss(reason)) => damaged.push((entry.name.clone(), reason)),
            Err(error) => return Err(error),
        }
    }
    if damaged.is_empty() {
        return Ok((None, Vec::new()));
    }
    let all: Vec<String> = told(damaged);
    Err(Error::DataLoss(format!("no checkpoint can be loaded: {}", all.join("; "))))
}

fn names(disk: &dyn Disk, root: &Path) -> Result<Vec<String>> {
    match disk.list(root) {
        // Names of checkpoints are valid Unicode.
        Ok(names) => Ok(names.into_iter().filter_map(|name| name.into_string().ok()).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(storage_error("cannot list", root, &error)),
    }
}

/// Returns the names in a folder. `None` if the path is not a folder or does not exist.
pub fn files_of(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<String>>> {
    match disk.list(path) {
        Ok(names) => Ok(Some(names.iter().map(|name| name.to_string_lossy().into_owned()).collect())),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotADirectory | io::ErrorKind::NotFound) => Ok(None),
        Err(error) => Err(storage_error("cannot list", path, &error)),
    }
}

/// Whether a folder with these files is a completely written checkpoint.
pub fn is_complete(files: &[String]) -> bool {
    files.iter().any(|file| file == DONE)
}

/// Returns the time in the name of a checkpoint. `None` if the name is not a time.
pub fn time_of(name: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(name, &Rfc3339).ok()
}

/// Returns the name of a new checkpoint. It is after all existing names, both by time and, for the reference, in
/// alphabetical order.
pub fn new_name(existing: &[CheckpointEntry], now: OffsetDateTime) -> Result<String> {
    let step = Duration::NANOSECOND;
    let mut time = existing.iter().filter_map(|entry| entry.time).max().map_or(now, |newest| now.max(newest + step));
    let greatest = existing.iter().filter(|entry| entry.time.is_some()).map(|entry| entry.name.as_str()).max();
    let name = format(time)?;
    match greatest {
        // The reference uses local time in names and sorts them alphabetically, so a name written in a time zone
        // further east may look later.
        Some(greatest) if greatest >= name.as_str() => {
            let local =
                greatest.get(..19).and_then(|digits| OffsetDateTime::parse(&format!("{digits}Z"), &Rfc3339).ok());
            let local = local.ok_or_else(|| Error::Internal(format!("`{greatest}` is not a valid time")))?;
            time = time.max(local + Duration::SECOND);
            format(time)
        }
        _ => Ok(name),
    }
}

/// Formats a time like the reference, but in UTC and always with nine fractional digits.
fn format(time: OffsetDateTime) -> Result<String> {
    let time = time.to_offset(time::UtcOffset::UTC);
    let whole = time.replace_nanosecond(0).map_err(|error| Error::Internal(error.to_string()))?;
    let text = whole
        .format(&Rfc3339)
        .map_err(|error| Error::Internal(format!("the time of the save cannot be formatted: {error}")))?;
    Ok(format!("{}.{:09}+00:00", text.trim_end_matches('Z'), time.nanosecond()))
}

/// Returns the path at which the checkpoint `name` is written before it is complete.
pub fn saving_path(root: &Path, name: &str) -> PathBuf {
    root.join(format!("{SAVING}{name}"))
}

/// Removes checkpoints whose save or removal was interrupted. The caller must hold the lock of the folder.
pub fn remove_leftovers(disk: &dyn Disk, root: &Path) -> Result<()> {
    for name in names(disk, root)? {
        if name.starts_with(SAVING) || name.starts_with(REMOVING) {
            remove_files(disk, &root.join(name))?;
        }
    }
    Ok(())
}

/// Removes a checkpoint, unless it contains foreign files.
pub fn remove(disk: &dyn Disk, root: &Path, name: &str) -> Result<()> {
    let path = root.join(name);
    let Some(files) = files_of(disk, &path)? else { return Ok(()) };
    if let Some(foreign) = files.iter().find(|file| !is_ours(file)) {
        tracing::warn!(
            "checkpoint {} is not removed, because it contains the foreign file `{foreign}`",
            path.display()
        );
        return Ok(());
    }
    // Renamed first, so that no incomplete checkpoint is found if the process is killed.
    let removing = root.join(format!("{REMOVING}{name}"));
    disk.rename(&path, &removing).map_err(|error| storage_error("cannot rename", &path, &error))?;
    remove_files(disk, &removing)
}

fn is_ours(file: &str) -> bool {
    [TABLES, ITEMS, CHUNKS, DONE, SIDECAR].contains(&file)
}

/// Removes the files of a checkpoint in a folder, and the folder if it is empty then.
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
    use crate::disk::RealDisk;

    fn entry(name: &str) -> CheckpointEntry {
        CheckpointEntry { name: name.into(), time: time_of(name), is_ours: true }
    }

    #[test]
    fn a_new_name_comes_after_all_existing_names() {
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

    #[test]
    fn a_checkpoint_that_a_save_replaces_meanwhile_is_not_damaged() {
        let root = std::env::temp_dir().join(format!("reverb-newest-{}", std::process::id()));
        std::fs::create_dir(&root).unwrap();
        let save = |name: &str| {
            std::fs::create_dir(root.join(name)).unwrap();
            std::fs::write(root.join(name).join(DONE), "").unwrap();
        };
        let [old, first, second] = ["2026-03-04T05:06:07Z", "2026-03-04T05:06:08Z", "2026-03-04T05:06:09Z"];
        save(old);
        save(first);
        let load = |path: &Path| match path.file_name().unwrap().to_str().unwrap() {
            name if name == first => {
                std::fs::remove_dir_all(path).unwrap();
                save(second);
                Err(Error::DataLoss("a file is missing".into()))
            }
            name => Ok(name.to_owned()),
        };
        let (found, damaged) = load_newest(&RealDisk, &root, load).unwrap();
        assert_eq!((found.unwrap().1.as_str(), damaged.len()), (second, 0));
        let spoil = |_: &Path| Err::<(), _>(Error::DataLoss("a file is missing".into()));
        let error = load_newest(&RealDisk, &root, spoil).unwrap_err().to_string();
        let names = [old, second].map(|name| format!("{name}: a file is missing"));
        assert!(names.iter().all(|name| error.contains(name)), "{error}");
        assert_eq!(load_newest(&RealDisk, &root.join("nowhere"), spoil).unwrap(), (None, Vec::new()));
        std::fs::remove_dir_all(root).unwrap();
    }
}
