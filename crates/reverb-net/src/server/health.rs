//! `grpc.health.v1.Health`, by which balancers and probes ask whether the server is there for them.

use crate::dm_reverb;
use crate::replay_v1;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health as HealthService, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

// limit (Connections and calls): message of a call for health, which needs no token | {:bytes} | `OUT_OF_RANGE`
/// Maximum size of a message. Strangers may call, and the message of each stream is kept until that ends.
const MAX_MESSAGE_BYTES: usize = 1 << 10;
/// The services that clients may ask about. The empty name means the server.
const SERVICES: [&str; 3] = ["", replay_v1::server::NAME, dm_reverb::server::NAME];

/// The health of a server: it serves until it is told to stop.
#[derive(Debug)]
pub struct Health {
    serving: watch::Sender<bool>,
}

impl Default for Health {
    fn default() -> Self {
        Self { serving: watch::Sender::new(true) }
    }
}

impl Health {
    /// Makes the service, to be added to the routes of the server.
    pub fn service(&self) -> HealthServer<Answers> {
        let service = HealthServer::new(Answers { serving: self.serving.subscribe() });
        service.max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// Reports from now on, to calls and to watchers, that the server no longer serves.
    pub fn stop(&self) {
        self.serving.send_replace(false);
    }
}

/// Answers the calls of the service.
#[derive(Debug)]
pub struct Answers {
    serving: watch::Receiver<bool>,
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

fn status_of(serving: bool) -> ServingStatus {
    if serving { ServingStatus::Serving } else { ServingStatus::NotServing }
}

#[tonic::async_trait]
impl HealthService for Answers {
    type WatchStream = ReceiverStream<Result<HealthCheckResponse, Status>>;

    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        if !SERVICES.contains(&request.get_ref().service.as_str()) {
            return Err(Status::not_found("unknown service"));
        }
        Ok(Response::new(response(status_of(*self.serving.borrow()))))
    }

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let is_known = SERVICES.contains(&request.get_ref().service.as_str());
        let (answers, stream) = mpsc::channel(2);
        tokio::spawn(watch(self.serving.clone(), is_known, answers));
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

/// Sends the status, and the next one when it changes. The stream ends with the server, so that the connection can be
/// closed.
async fn watch(
    mut serving: watch::Receiver<bool>,
    is_known: bool,
    answers: mpsc::Sender<Result<HealthCheckResponse, Status>>,
) {
    loop {
        let is_serving = *serving.borrow_and_update();
        let status = if is_known { status_of(is_serving) } else { ServingStatus::ServiceUnknown };
        if answers.send(Ok(response(status))).await.is_err() || !is_serving {
            return;
        }
        tokio::select! {
            changed = serving.changed() => if changed.is_err() { return },
            () = answers.closed() => return,
        }
    }
}
