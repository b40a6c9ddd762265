//! Where the Unix sockets of servers lie: in a folder that only this user can write to, and usually only this user can
//! enter.

use super::peer_user::is_owner_trusted;
use std::io::Result;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Returns the path of the socket of a server that listens at a host. Makes the folder, which other users can enter if the
/// socket is for them, too.
///
/// # Errors
/// The error of the system, or that other users can write to the folder.
pub fn of_server(host: IpAddr, port: u16, is_for_others: bool) -> Result<PathBuf> {
    Ok(if is_for_others { shared_folder() } else { runtime_folder() }?.join(name_of(host, port)))
}

/// Returns the paths at which a client looks for the socket of a server that listens at a host: in the folder of its user,
/// and in those for other users, of its own and of `others`, whom it trusts.
pub fn known(host: IpAddr, port: u16, others: &[u32]) -> Vec<PathBuf> {
    let shared = std::iter::once(own_user()).chain(others.iter().copied()).map(shared_path);
    let shared = shared.map(|folder| folder.join(name_of(host, port))).filter(|path| is_safe(path, others));
    of_server(host, port, false).into_iter().chain(shared).collect()
}

fn name_of(host: IpAddr, port: u16) -> String {
    if host == Ipv4Addr::LOCALHOST { format!("{port}.sock") } else { format!("{host}-{port}.sock") }
}

fn own_user() -> u32 {
    // SAFETY: the call has no preconditions and cannot fail.
    unsafe { libc::getuid() }
}

/// Whether no other user can put a socket in the place of this one, because none can write to its folder or to those above.
/// In a sticky folder above, such as `/tmp`, users cannot replace what belongs to others. `others` are users who are trusted
/// beside the own one and root.
pub fn is_safe(path: &Path, others: &[u32]) -> bool {
    const STICKY: u32 = 0o1000;
    let Ok(path) = path.canonicalize() else { return false };
    let is_closed = |folder: &Path, allowed: u32| {
        std::fs::metadata(folder).is_ok_and(|meta| {
            is_owner_trusted(meta.uid(), others) && (meta.mode() & 0o022 == 0 || meta.mode() & allowed != 0)
        })
    };
    let mut folders = path.ancestors().skip(1);
    folders.next().is_some_and(|own| is_closed(own, 0)) && folders.all(|above| is_closed(above, STICKY))
}

fn runtime_folder() -> Result<PathBuf> {
    let uid = own_user();
    let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| is_ours(path, uid));
    let folder = match base {
        Some(base) => base.join("reverb"),
        None => std::env::temp_dir().join(format!("reverb-{uid}")),
    };
    make(folder, uid, 0o700)
}

/// The folder of sockets that other users may use. Those of `XDG_RUNTIME_DIR` cannot be entered by them.
fn shared_path(user: u32) -> PathBuf {
    std::env::temp_dir().join(format!("reverb-{user}-shared"))
}

fn shared_folder() -> Result<PathBuf> {
    let uid = own_user();
    let folder = make(shared_path(uid), uid, 0o711)?;
    // Whatever the process takes from the modes of what it makes.
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o711))?;
    Ok(folder)
}

/// Makes a folder, or takes one of this user that no other can write to.
fn make(folder: PathBuf, uid: u32, mode: u32) -> Result<PathBuf> {
    std::fs::DirBuilder::new().recursive(true).mode(mode).create(&folder)?;
    if !is_ours(&folder, uid) {
        return Err(std::io::Error::other(format!(
            "{} belongs to another user, or other users can write to it",
            folder.display()
        )));
    }
    Ok(folder)
}

fn is_ours(path: &Path, uid: u32) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == uid && meta.mode() & 0o022 == 0)
}
