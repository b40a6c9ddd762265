//! Sends warnings of the crates below to Python's `logging`, logger `reverb`.

use pyo3::prelude::*;
use std::fmt::Write;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Sends events to Python from now on, unless the process already has a subscriber.
pub fn install() {
    let _other = tracing::subscriber::set_global_default(ToPython);
}

struct ToPython;

impl Subscriber for ToPython {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Below the level of warnings, only the progress of long saves and loads is sent.
        let is_progress = *metadata.level() == Level::INFO && metadata.target().starts_with("reverb_store::checkpoint");
        is_progress || (*metadata.level() <= Level::WARN && metadata.target().starts_with("reverb"))
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message::default();
        event.record(&mut message);
        let method = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            _ => "info",
        };
        // Events are rare, and they come from threads that must not wait for the GIL.
        let _none_left = std::thread::Builder::new().name("reverb-log".into()).spawn(move || {
            Python::try_attach(|py| {
                let logged = py
                    .import("logging")
                    .and_then(|logging| logging.call_method1("getLogger", ("reverb",)))
                    .and_then(|logger| logger.call_method1(method, ("%s", message.0)));
                if let Err(error) = logged {
                    error.write_unraisable(py, None);
                }
            })
        });
    }
}

#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _infallible = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
