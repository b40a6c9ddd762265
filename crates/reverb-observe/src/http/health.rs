//! `/livez`, `/readyz` and `/healthz`: whether the server runs, and whether it serves. They wait for no lock of a table.

use super::answer::text;
use super::state::HttpState;
use axum::http::StatusCode;
use axum::response::Response;
use reverb_service::{StoreProgress, Trouble, Verdict};

/// Whether a path is one of health.
pub fn is_path(path: &str) -> bool {
    matches!(path, "/livez" | "/readyz" | "/healthz")
}

/// Answers a request for one of these paths. `may_know` adds what the server says of itself, which names tables and files.
pub fn answer(path: &str, state: &HttpState, may_know: bool) -> Response {
    let obstacle = if path == "/livez" { None } else { obstacle(state) };
    match obstacle {
        Some(obstacle) => text(StatusCode::SERVICE_UNAVAILABLE, &obstacle),
        None if path == "/readyz" && may_know => text(StatusCode::OK, &ready(state)),
        None if path == "/readyz" => text(StatusCode::OK, "ready"),
        None => text(StatusCode::OK, "ok"),
    }
}

/// Returns what a server that serves says of itself. One that stalls, whose saves fail, or whose log is closed, serves on:
/// draws go on, and an end would help nobody.
fn ready(state: &HttpState) -> String {
    let watched = state.replay.facts.watched.lock().clone();
    let Verdict { line, troubles, .. } = &watched.verdict;
    // A save that has failed since the latest look.
    let failure = state.replay.store().and_then(|store| store.failure()).map(Trouble::SaveFailed);
    match failure.filter(|failure| !troubles.contains(failure)) {
        Some(failure) => format!("ready. {line}; {failure}"),
        None => format!("ready. {line}"),
    }
}

/// Returns why the server does not serve.
fn obstacle(state: &HttpState) -> Option<String> {
    if state.replay.is_closed() {
        return Some("stopping".into());
    }
    if state.replay.facts.addresses.get().is_some() {
        return None;
    }
    let Some(store) = state.replay.store() else { return Some("starting".into()) };
    Some(store.status().loading.map_or_else(|| "loading checkpoint".into(), |progress| loading(&progress)))
}

fn loading(progress: &StoreProgress) -> String {
    let &StoreProgress { done_bytes, total_bytes, .. } = progress;
    if total_bytes == 0 {
        return "loading checkpoint".into();
    }
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let (unit, bits) = units.into_iter().find(|(_, bits)| total_bytes >> bits > 0).unwrap_or(("B", 0));
    let size = |bytes: u64| bytes as f64 / (1_u64 << bits) as f64;
    let done = done_bytes.min(total_bytes);
    let percentage = 100 * u128::from(done) / u128::from(total_bytes);
    let digits = usize::from(bits > 0);
    format!("loading checkpoint {:.digits$} of {:.digits$} {unit} ({percentage} %)", size(done), size(total_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn progress_of_a_load_has_units_and_a_percentage() {
        let text = |done_bytes, total_bytes| {
            loading(&StoreProgress { path: "x".into(), since: SystemTime::now(), done_bytes, total_bytes })
        };
        assert_eq!(text(0, 0), "loading checkpoint");
        assert_eq!(text(31 << 30, 80 << 30), "loading checkpoint 31.0 of 80.0 GiB (38 %)");
        assert_eq!(text(3 << 19, 8 << 20), "loading checkpoint 1.5 of 8.0 MiB (18 %)");
        assert_eq!(text(2048, 2048), "loading checkpoint 2.0 of 2.0 KiB (100 %)");
        assert_eq!(text(9, 12), "loading checkpoint 9 of 12 B (75 %)");
        assert_eq!(text(13, 12), "loading checkpoint 12 of 12 B (100 %)");
        assert_eq!(text(u64::MAX, u64::MAX).split_once('(').map(|(_, rest)| rest), Some("100 %)"));
    }
}
