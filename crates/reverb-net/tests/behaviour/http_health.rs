//! What probes hear while a server loads, serves, saves and stops, and while its handlers are busy.

use crate::common::uniform;
use parking_lot::{Condvar, Mutex};
use reverb_core::Result;
use reverb_net::METHODS;
use reverb_net::server::{ListenOptions, Server};
use reverb_observe::http::{HttpOptions, HttpServer, HttpState};
use reverb_service::{LogMode, Replay, Store, StoreLog, StoreProgress, StoreStatus, TableHandle};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime};
use tokio::runtime::{Builder, Runtime};

/// A store whose load is under way, and whose save lasts until it is let go on.
#[derive(Debug, Default)]
struct SlowStore {
    is_let_go: Mutex<bool>,
    changed: Condvar,
    done_bytes: Mutex<Option<u64>>,
    failure: Mutex<Option<String>>,
    log: Mutex<Option<StoreLog>>,
}

impl Store for SlowStore {
    fn save(&self, _tables: &[TableHandle]) -> Result<PathBuf> {
        let mut is_let_go = self.is_let_go.lock();
        self.changed.wait_while(&mut is_let_go, |is_let_go| !*is_let_go);
        Ok(PathBuf::new())
    }

    fn save_last(&self, tables: &[TableHandle]) -> Result<PathBuf> {
        self.save(tables)
    }

    fn interval(&self) -> Option<Duration> {
        None
    }

    fn wants_save(&self) -> bool {
        false
    }

    fn saves_on_stop(&self) -> bool {
        true
    }

    fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    fn log(&self) -> Option<StoreLog> {
        self.log.lock().clone()
    }

    fn status(&self) -> StoreStatus {
        let since = SystemTime::now();
        let progress = |done_bytes| StoreProgress { path: "x".into(), since, done_bytes, total_bytes: 80 << 20 };
        StoreStatus {
            loading: self.done_bytes.lock().map(progress),
            last_error: self.failure(),
            log: self.log(),
            ..Default::default()
        }
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

struct Setting {
    http_runtime: Runtime,
    replay: Arc<Replay>,
    state: Arc<HttpState>,
    http: HttpServer,
}

fn setting() -> Setting {
    let http_runtime = runtime();
    let replay = Replay::new(vec![uniform("table")], 1 << 20).expect("a service");
    let state = Arc::new(HttpState::new(replay.clone(), &METHODS));
    let http = HttpServer::start(http_runtime.handle(), state.clone(), &HttpOptions::default()).expect("a free port");
    Setting { http_runtime, replay, state, http }
}

/// Returns the status and the text of the answer.
fn get(port: u16, path: &str) -> (String, String) {
    get_from(port, "Host: localhost", path)
}

fn get_from(port: u16, headers: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the port listens");
    write!(stream, "GET {path} HTTP/1.1\r\n{headers}\r\nConnection: close\r\n\r\n").expect("it takes a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.split(' ').nth(1).expect("a status").into(), body.trim_end().into())
}

fn answer(status: &str, body: &str) -> (String, String) {
    (status.into(), body.into())
}

#[test]
fn probes_hear_what_a_server_does_from_its_start_to_its_end() {
    let Setting { http_runtime, replay, http, .. } = setting();
    let port = http.port();
    let all = |ready: (String, String)| {
        assert_eq!(get(port, "/livez"), answer("200", "ok"));
        let all_is_well = if ready.0 == "200" { answer("200", "ok") } else { ready.clone() };
        assert_eq!(get(port, "/healthz"), all_is_well);
        assert_eq!(get(port, "/readyz"), ready);
    };
    all(answer("503", "starting"));
    let store = Arc::new(SlowStore::default());
    replay.set_store(store.clone());
    all(answer("503", "loading checkpoint"));
    *store.done_bytes.lock() = Some(31 << 20);
    all(answer("503", "loading checkpoint 31.0 of 80.0 MiB (38 %)"));

    let runtime = runtime();
    let options = ListenOptions::default();
    let mut server = Server::start(runtime.handle(), replay.clone(), &options, Some(http)).expect("the server starts");
    // The verdict has a time in it.
    let ready = |end: &str| {
        let (status, text) = get(port, "/readyz");
        assert!(status == "200" && text.starts_with("ready. Idle ") && text.contains(end), "{status} {text}");
        assert_eq!((get(port, "/livez"), get(port, "/healthz")), (answer("200", "ok"), answer("200", "ok")));
    };
    let is_looked_at = || get(port, "/readyz").1.contains("nobody is connected");
    while !is_looked_at() {
        std::thread::yield_now();
    }
    ready("nobody is connected");
    *store.failure.lock() = Some("the disk is full".into());
    ready("; the latest save failed: the disk is full");
    *store.failure.lock() = None;

    let stopping = std::thread::spawn(move || server.stop());
    while !replay.is_closed() {
        std::thread::yield_now();
    }
    all(answer("503", "stopping"));
    *store.is_let_go.lock() = true;
    store.changed.notify_all();
    stopping.join().expect("it stops").expect("the save succeeds");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "the port is free");
    drop((runtime, http_runtime));
}

#[test]
fn all_that_is_shown_of_a_server_knows_its_log() {
    let Setting { http_runtime, replay, http, .. } = setting();
    let (port, runtime, store) = (http.port(), runtime(), Arc::new(SlowStore::default()));
    replay.set_store(store.clone());
    let server = Server::start(runtime.handle(), replay, &ListenOptions::default(), Some(http)).expect("it starts");
    let await_text = |path: &str, text: &str| {
        while !get(port, path).1.contains(text) {
            std::thread::yield_now();
        }
    };
    assert!(get(port, "/api/v1/checkpoints").1.contains(r#""log":null"#));
    assert!(!get(port, "/metrics").1.contains("reverb_log_"));
    let (sync_age, sync_interval) = (Duration::from_secs(99), Duration::from_secs(1));
    let log = StoreLog { mode: LogMode::Power, size_bytes: 4096, sync_age, sync_interval, is_low: true, failure: None };
    *store.log.lock() = Some(log.clone());
    let figures = r#""mode":"power","size_bytes":4096,"sync_age_seconds":99.0,"sync_interval_seconds":1.0"#;
    let told = get(port, "/api/v1/checkpoints").1;
    assert!(told.contains(&format!(r#""log":{{{figures},"is_disk_low":true,"failure":null}}"#)), "{told}");
    await_text("/readyz", "; the log has not been synced for 1 min 39 s; the disk has too little free space");
    await_text("/api/v1/verdict", r#""level":"warning""#);
    let metrics = |expected: [&str; 3]| {
        let text = get(port, "/metrics").1;
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let of_all =
            [r#"reverb_log_info{mode="power"} 1"#, "reverb_log_bytes 4096", "reverb_log_sync_interval_seconds 1.0"];
        of_all.into_iter().chain(expected).for_each(|line| assert!(samples.contains(&line), "{line} in {text}"));
    };
    metrics(["reverb_log_sync_age_seconds 99.0", "reverb_log_failed 0", "reverb_log_disk_low 1"]);
    let failure = Some("cannot write: no room".into());
    *store.log.lock() = Some(StoreLog { is_low: false, sync_age: Duration::ZERO, failure, ..log.clone() });
    await_text("/readyz", "; the log is closed: cannot write: no room; inserts, deletes");
    await_text("/api/v1/verdict", r#""kind":"log_closed""#);
    assert_eq!((get(port, "/readyz").0, get(port, "/healthz")), ("200".into(), answer("200", "ok")));
    metrics(["reverb_log_sync_age_seconds 0.0", "reverb_log_failed 1", "reverb_log_disk_low 0"]);
    await_text("/api/v1/history", "the log was closed: cannot write: no room");
    *store.log.lock() = Some(StoreLog { sync_age: Duration::ZERO, is_low: false, ..log });
    await_text("/api/v1/history", r#""kind":"log_opened""#);
    await_text("/api/v1/verdict", r#""troubles":[]"#);
    *store.is_let_go.lock() = true;
    drop((server, runtime, http_runtime));
}

/// Probes send any host, and so do pages of other sites with DNS rebinding.
#[test]
fn those_that_may_be_of_another_site_hear_no_verdict() {
    let Setting { http_runtime, replay, http, .. } = setting();
    let port = http.port();
    let runtime = runtime();
    let server = Server::start(runtime.handle(), replay, &ListenOptions::default(), Some(http)).expect("it starts");
    for own in ["Host: localhost", "Host: 10.0.0.5:8080"] {
        assert!(get_from(port, own, "/readyz").1.starts_with("ready. "), "{own}");
    }
    for other in ["Host: evil.example", "Host: localhost\r\nSec-Fetch-Site: cross-site"] {
        assert_eq!(get_from(port, other, "/readyz"), answer("200", "ready"), "{other}");
        assert_eq!(get_from(port, other, "/healthz"), answer("200", "ok"), "{other}");
    }
    drop((server, runtime, http_runtime));
}

#[test]
fn health_is_answered_while_requests_that_read_tables_wait() {
    let Setting { http_runtime, state, http, .. } = setting();
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock();
    let begun = Arc::new(AtomicUsize::new(0));
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let (state, gate, begun) = (state.clone(), gate.clone(), begun.clone());
            http_runtime.spawn(async move {
                let work = move |_: &HttpState| {
                    begun.fetch_add(1, Relaxed);
                    drop(gate.lock());
                    7
                };
                state.heavy(work).await.expect("the work does not panic")
            })
        })
        .collect();
    while begun.load(Relaxed) < 8 {
        std::thread::yield_now();
    }
    for path in ["/livez", "/readyz", "/healthz"] {
        let _answered = get(http.port(), path);
    }
    assert_eq!(begun.load(Relaxed), 8, "eight at the same time");
    drop(closed);
    for task in waiting {
        assert_eq!(http_runtime.block_on(task).expect("it ends"), 7);
    }
}

/// Asks for a path without an end of the connection.
fn begin(host: &str, port: u16, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect((host, port)).expect("the port listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it takes a request");
    stream
}

#[test]
fn while_all_connections_wait_for_answers_further_ones_are_asked_for_health_once() {
    let Setting { http_runtime, state, http, .. } = setting();
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock();
    let begun = Arc::new(AtomicUsize::new(0));
    for _ in 0..8 {
        let (state, gate, begun) = (state.clone(), gate.clone(), begun.clone());
        let work = move |_: &HttpState| {
            begun.fetch_add(1, Relaxed);
            drop(gate.lock());
        };
        http_runtime.spawn(async move { state.heavy(work).await.is_ok() });
    }
    // A request for metrics that comes before them is answered.
    while begun.load(Relaxed) < 8 {
        std::thread::yield_now();
    }
    let mut hosts = vec!["127.0.0.1", "::1"];
    // The machine may lack IPv6.
    hosts.retain(|&host| TcpStream::connect((host, http.port())).is_ok());
    let mut waiting = Vec::new();
    let refused = loop {
        let mut stream = begin(hosts[waiting.len() % hosts.len()], http.port(), "/metrics");
        stream.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        let mut answer = [0; 1 << 10];
        if let Ok(length @ 1..) = stream.read(&mut answer) {
            break String::from_utf8_lossy(&answer[..length]).into_owned();
        }
        waiting.push(stream);
        assert!(waiting.len() < 200, "nothing is refused");
    };
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("64 HTTP requests"), "{refused}");
    assert!((64..128).contains(&waiting.len()), "the addresses share the places, of which {} are taken", waiting.len());
    for host in hosts {
        let mut health = begin(host, http.port(), "/livez");
        write!(health, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it takes a request");
        let mut answers = String::new();
        health.read_to_string(&mut answers).expect("it answers, and ends");
        assert_eq!(answers.matches("HTTP/1.1 200 ").count(), 1, "{host}: {answers}");
    }
    drop(closed);
    for mut stream in waiting {
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        let mut start = [0; 13];
        stream.read_exact(&mut start).expect("it answers");
        assert_eq!(start, *b"HTTP/1.1 200 ");
    }
}

#[test]
fn work_that_panics_ends_its_own_request_only() {
    let Setting { http_runtime, state, http, .. } = setting();
    for _ in 0..20 {
        assert!(http_runtime.block_on(async { http_runtime.spawn(failing(state.clone())).await }).expect("no panic"));
    }
    assert_eq!(get(http.port(), "/livez"), answer("200", "ok"));
}

async fn failing(state: Arc<HttpState>) -> bool {
    state.heavy(|_| panic!("on purpose")).await.map(|(): ()| ()).is_err()
}
