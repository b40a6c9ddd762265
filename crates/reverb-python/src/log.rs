//! Sends warnings of the crates below to Python's `logging`, logger `reverb`, and keeps them for the live page. Lines of
//! the audit go to the logger `reverb.audit`, in their order.

use crate::without_gil::without_gil;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use reverb_core::fork;
use reverb_secure::AUDIT;
use reverb_service::event_log::{self, LogLevel};
use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Sends events to Python from now on, unless the process already has a subscriber.
pub fn install() {
    let _other = tracing::subscriber::set_global_default(ToPython);
}

struct ToPython;

/// Maximum time to wait for handlers of logging at interpreter exit.
const END_TIME: Duration = Duration::from_secs(5);
/// Time between two looks.
const END_PAUSE: Duration = Duration::from_millis(1);

/// Whether events are sent to Python.
static IS_OPEN: AtomicBool = AtomicBool::new(true);
/// Number of events on their way.
static SENDING: AtomicUsize = AtomicUsize::new(0);

/// Counts an event on its way to Python, from before somebody looks whether it may be sent.
struct Sending;

impl Sending {
    /// `None` if the interpreter is about to end.
    fn begin() -> Option<Self> {
        SENDING.fetch_add(1, SeqCst);
        let sending = Self;
        IS_OPEN.load(SeqCst).then_some(sending)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        SENDING.fetch_sub(1, SeqCst);
    }
}

/// Sends no further events, and waits for those under way. Must be called before the interpreter ends: it ends each thread
/// that then asks for the GIL, which aborts the process if the thread is one of Rust.
#[pyfunction]
pub fn end_log(py: Python<'_>) {
    IS_OPEN.store(false, SeqCst);
    // The threads of a parent process do not exist here.
    if fork::generation() == 0 {
        let until = Instant::now() + END_TIME;
        without_gil(py, || {
            while SENDING.load(SeqCst) > 0 && Instant::now() < until {
                std::thread::sleep(END_PAUSE);
            }
        });
    }
}

/// Whether Python gets an event.
fn is_for_python(metadata: &Metadata<'_>) -> bool {
    // Below the level of warnings, only saves, loads, what happens to a table, and clients that vanish are sent.
    let has = |name| metadata.fields().field(name).is_some();
    let is_of_checkpoint = metadata.target().starts_with("reverb_store::checkpoint");
    *metadata.level() <= Level::WARN || is_of_checkpoint || has("table") || has("client")
}

impl Subscriber for ToPython {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("reverb")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut logged = Logged::default();
        event.record(&mut logged);
        if event.metadata().target() == AUDIT {
            return audit(logged.message);
        }
        let (level, method) = match *event.metadata().level() {
            Level::ERROR => (LogLevel::Error, "error"),
            Level::WARN => (LogLevel::Warning, "warning"),
            _ => (LogLevel::Info, "info"),
        };
        event_log::keep(level, &logged.message);
        if !is_for_python(event.metadata()) {
            return;
        }
        let Some(sending) = Sending::begin() else { return };
        // Events are rare, and they are logged by threads that must not wait for the GIL.
        let _none_left = std::thread::Builder::new().name("reverb-log".into()).spawn(move || {
            let _sending = sending;
            Python::try_attach(|py| {
                if let Err(error) = logged.send(py, method) {
                    error.write_unraisable(py, None);
                }
            })
        });
    }
}

type AuditLine = (Sending, String);

/// Sends a line of the audit to Python. One thread does that for all, which keeps their order, and never makes a caller
/// wait for the GIL.
fn audit(line: String) {
    /// The lines for the thread, and the process that has it: a forked one has no threads.
    static LINES: Mutex<Option<(u32, Sender<AuditLine>)>> = Mutex::new(None);
    let Some(sending) = Sending::begin() else { return };
    let mut lines = LINES.lock();
    let now = fork::generation();
    let sender = match &*lines {
        Some((generation, sender)) if *generation == now => sender.clone(),
        _ => {
            let (sender, receiver) = channel::<AuditLine>();
            let send_all = move || receiver.into_iter().for_each(|(_sending, line)| send_audited(&line));
            let _none_left = std::thread::Builder::new().name("reverb-audit".into()).spawn(send_all);
            *lines = Some((now, sender.clone()));
            sender
        }
    };
    let _none_left = sender.send((sending, line));
}

fn send_audited(line: &str) {
    Python::try_attach(|py| {
        let logger = py.import("logging").and_then(|logging| logging.call_method1("getLogger", ("reverb.audit",)));
        if let Err(error) = logger.and_then(|logger| logger.call_method1("info", ("%s", line))) {
            error.write_unraisable(py, None);
        }
    });
}

/// An event: its text, and its fields for programs that read logs.
#[derive(Default)]
struct Logged {
    message: String,
    fields: Vec<(&'static str, Value)>,
}

#[derive(IntoPyObject)]
enum Value {
    Text(String),
    Integer(i128),
    Number(f64),
}

impl Logged {
    /// Calls a method of Python's logger. The record has the fields as its attribute `fields`, a dict. Names in the message
    /// may be anybody's, and most programs write messages to a terminal or a file as they are.
    fn send(self, py: Python<'_>, method: &str) -> PyResult<()> {
        let extra = [("fields", self.fields.into_py_dict(py)?)].into_py_dict(py)?;
        let keywords = [("extra", extra)].into_py_dict(py)?;
        let logger = py.import("logging")?.call_method1("getLogger", ("reverb",))?;
        let message = py.import("reverb.logging.escaping")?.call_method1("escaped", (self.message,))?;
        logger.call_method(method, ("%s", message), Some(&keywords))?;
        Ok(())
    }
}

impl Visit for Logged {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.fields.push((field.name(), Value::Number(value)));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.push((field.name(), Value::Integer(value.into())));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.push((field.name(), Value::Integer(value.into())));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message.push_str(value),
            name => self.fields.push((name, Value::Text(value.into()))),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => {
                let _infallible = write!(self.message, "{value:?}");
            }
            name => self.fields.push((name, Value::Text(format!("{value:?}")))),
        }
    }
}
