//! The users at the two ends of a Unix socket. Each end trusts its own user and root, and nobody else.

use std::sync::LazyLock;
use tokio::net::UnixStream;

/// What the system shows instead of users that it cannot name here, such as those of other containers.
const OVERFLOW_USER: u32 = 65_534;
const ROOT: u32 = 0;

/// Whether the process at the other end may be trusted.
///
/// # Errors
/// The number of its user, if it is known.
pub fn check(stream: &UnixStream) -> Result<(), Option<u32>> {
    let user = stream.peer_cred().map_err(|_| None)?.uid();
    if is_trusted(user, own(), overflow_user()) { Ok(()) } else { Err(Some(user)) }
}

/// Whether the process at the other end is of a trusted user, or of one of these.
///
/// # Errors
/// The number of its user, if it is known.
pub fn check_among(stream: &UnixStream, others: &[u32]) -> Result<(), Option<u32>> {
    match check(stream) {
        Err(Some(user)) if others.contains(&user) && user != overflow_user() => Ok(()),
        checked => checked,
    }
}

/// Whether this process trusts files of a user.
pub fn is_owner_trusted(user: u32) -> bool {
    user == own() || user == ROOT
}

/// Returns the user of this process.
pub fn own() -> u32 {
    // SAFETY: the call has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

fn is_trusted(user: u32, own: u32, overflow: u32) -> bool {
    user != overflow && (user == own || user == ROOT)
}

fn overflow_user() -> u32 {
    static USER: LazyLock<u32> = LazyLock::new(|| {
        let told = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
        told.and_then(|text| text.trim().parse().ok()).unwrap_or(OVERFLOW_USER)
    });
    *USER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_user_and_root_are_trusted() {
        assert!(is_trusted(1000, 1000, OVERFLOW_USER) && is_trusted(ROOT, 1000, OVERFLOW_USER));
        assert!(!is_trusted(1001, 1000, OVERFLOW_USER) && !is_trusted(1000, ROOT, OVERFLOW_USER));
        // Anybody may be behind it, also where this process has it itself.
        assert!(!is_trusted(OVERFLOW_USER, OVERFLOW_USER, OVERFLOW_USER));
    }
}
