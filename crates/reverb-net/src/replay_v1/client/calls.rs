//! A stream of a connection that all callers share: it sends their requests, and delivers an answer to each.

use super::session::Link;
use crate::replay_v1::heartbeat::spawn_heartbeat;
use parking_lot::Mutex;
use reverb_core::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::{oneshot, watch};

/// The callers' side of a stream of requests `R`, whose answers are `T`.
#[derive(Debug)]
pub struct SharedStream<R, T> {
    /// Sends requests. If the stream has ended, it has failed their calls, whose receivers get the reason.
    pub requests: UnboundedSender<R>,
    /// The calls that wait.
    pub calls: Arc<Calls<T>>,
    next_id: AtomicU64,
    /// Told of the first call, if the stream is opened for that.
    is_wanted: Option<watch::Sender<bool>>,
}

/// The calls of a stream that wait for their answers, by the ids of their requests.
#[derive(Debug)]
pub struct Calls<T>(Mutex<State<T>>);

#[derive(Debug)]
struct State<T> {
    waiting: HashMap<u64, oneshot::Sender<Result<T>>>,
    /// The error that ended the stream. Nothing can be sent after it.
    broken: Option<Error>,
}

impl<R: Default + Send + 'static, T: Send + 'static> SharedStream<R, T> {
    /// Opens a stream of the requests of a channel in the background by `read`, which sends them, reads the answers, and
    /// returns the error that ends the stream.
    ///
    /// The server would refuse a caller that may only view. Its stream is opened for the first call, which is told why.
    pub fn open<F: Future<Output = Error> + Send + 'static>(
        link: Arc<Link>,
        heartbeat: Option<Duration>,
        (requests, to_send): (UnboundedSender<R>, UnboundedReceiver<R>),
        read: impl FnOnce(UnboundedReceiver<R>, Arc<Calls<T>>) -> F,
    ) -> Self {
        let calls = Arc::new(Calls(Mutex::new(State { waiting: HashMap::new(), broken: None })));
        let (reading, reader) = (read(to_send, calls.clone()), calls.clone());
        let is_wanted = link.views_only.then(|| watch::Sender::new(false));
        let wanted = is_wanted.as_ref().map(watch::Sender::subscribe);
        tokio::spawn(async move {
            if let Some(mut wanted) = wanted
                && wanted.wait_for(|is_wanted| *is_wanted).await.is_err()
            {
                return;
            }
            let error = link.note(reading.await);
            link.set_broken();
            reader.fail(&error);
        });
        if let Some(interval) = heartbeat {
            let (calls, requests) = (Arc::downgrade(&calls), requests.downgrade());
            spawn_heartbeat(interval, move || {
                let (calls, requests) = (calls.upgrade()?, requests.upgrade()?);
                let waits = !calls.0.lock().waiting.is_empty();
                if waits { requests.send(R::default()).ok() } else { Some(()) }
            });
        }
        Self { requests, calls, next_id: AtomicU64::new(1), is_wanted }
    }

    /// Begins a call. Returns the id of its request, and the receiver of its answer.
    ///
    /// # Errors
    /// The error that ended the stream.
    pub fn begin(&self) -> Result<(u64, oneshot::Receiver<Result<T>>)> {
        let request_id = self.next_id.fetch_add(1, Relaxed);
        let receiver = self.calls.expect(request_id)?;
        if let Some(is_wanted) = &self.is_wanted {
            is_wanted.send_replace(true);
        }
        Ok((request_id, receiver))
    }
}

impl<T> Calls<T> {
    /// Expects an answer to a request, the first or the next. Returns its receiver.
    ///
    /// # Errors
    /// The error that ended the stream.
    pub fn expect(&self, request_id: u64) -> Result<oneshot::Receiver<Result<T>>> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.0.lock();
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        state.waiting.insert(request_id, sender);
        Ok(receiver)
    }

    /// Delivers an answer, unless its caller has withdrawn the call.
    pub fn answer(&self, request_id: u64, result: Result<T>) {
        let call = self.0.lock().waiting.remove(&request_id);
        if let Some(call) = call {
            let _withdrawn = call.send(result);
        }
    }

    /// Forgets a call whose caller does not wait any more.
    pub fn withdraw(&self, request_id: u64) {
        self.0.lock().waiting.remove(&request_id);
    }

    /// Returns the error that ended the stream, if it has ended.
    pub fn broken(&self) -> Option<Error> {
        self.0.lock().broken.clone()
    }

    fn fail(&self, error: &Error) {
        let waiting = {
            let mut state = self.0.lock();
            state.broken = Some(error.clone());
            std::mem::take(&mut state.waiting)
        };
        for call in waiting.into_values() {
            let _withdrawn = call.send(Err(error.clone()));
        }
    }
}

/// Waits for the answer of a call. The future may be dropped, and the function called again.
pub async fn answer<T>(receiver: &mut oneshot::Receiver<Result<T>>) -> Result<T> {
    receiver.await.unwrap_or_else(|_| Err(Error::Internal("a call ended without an answer".into())))
}
