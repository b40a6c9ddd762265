//! The users at the two ends of a Unix socket. Each end trusts its own user, root, and those that it was told to trust.

use std::sync::LazyLock;
use tokio::net::UnixStream;

/// What the system shows instead of users that it cannot name here, such as those of other containers.
const OVERFLOW_USER: u32 = 65_534;
const ROOT: u32 = 0;

/// Whether the process at the other end may be trusted. `others` are users who are, beside the own one and root.
///
/// # Errors
/// The number of its user, if it is known.
pub fn check(stream: &UnixStream, others: &[u32]) -> Result<(), Option<u32>> {
    let user = stream.peer_cred().map_err(|_| None)?.uid();
    if is_trusted(user, own(), others, overflow_user()) { Ok(()) } else { Err(Some(user)) }
}

/// Whether this process trusts files of a user. `others` are users whom it trusts beside its own and root.
pub fn is_owner_trusted(user: u32, others: &[u32]) -> bool {
    user == own() || user == ROOT || others.contains(&user)
}

/// Returns the user of this process.
pub fn own() -> u32 {
    // SAFETY: the call has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

fn is_trusted(user: u32, own: u32, others: &[u32], overflow: u32) -> bool {
    user != overflow && (user == own || user == ROOT || others.contains(&user))
}

/// Returns the number that the system shows in place of users that it cannot name.
pub fn overflow_user() -> u32 {
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
    fn only_the_own_user_root_and_those_that_were_named_are_trusted() {
        let is_trusted = |user, own, others: &[u32]| is_trusted(user, own, others, OVERFLOW_USER);
        assert!(is_trusted(1000, 1000, &[]) && is_trusted(ROOT, 1000, &[]) && is_trusted(1001, 1000, &[1002, 1001]));
        assert!(!is_trusted(1001, 1000, &[]) && !is_trusted(1000, ROOT, &[]) && !is_trusted(1001, 1000, &[1002]));
        // Anybody may be behind it, also where this process has it itself.
        assert!(!is_trusted(OVERFLOW_USER, OVERFLOW_USER, &[OVERFLOW_USER]));
    }
}
