//! Notices in the log about calls that wait for a long time.

/// Logs a notice that says why a call still waits.
pub fn warn(notice: &str) {
    tracing::warn!("{notice}");
}
