//! Asks a server for its health by gRPC's own service, `grpc.health.v1`, which servers of other programs have too.

use crate::grpc::codes::error_of;
use crate::transport::address::{Endpoint, Several};
use crate::transport::authorized::Channel;
use crate::transport::dial::{KeepAlive, dial};
use crate::transport::wrong_port::WrongPort;
use reverb_core::{Error, Result};
use reverb_service::Transport;
use std::time::Duration;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Returns whether `service` is served at an address; an empty name means the server as a whole. Asks once.
///
/// # Errors
/// [`Error::Unavailable`] if no server answers, [`Error::DeadlineExceeded`] if it does not answer in time,
/// [`Error::InvalidArgument`] if it has no such service, if only one end speaks TLS or if the address names several
/// servers or a token may not be sent there, [`Error::Unauthenticated`] if one end does not trust the other, and [`Error::Unimplemented`] if it does not
/// tell its health.
pub async fn is_serving(endpoint: &Endpoint, service: &str, timeout: Duration) -> Result<bool> {
    if let Some(Several::List(entries)) = endpoint.address.several() {
        return Err(Error::invalid(format!(
            "expected the address of one server, got the {} of `{endpoint}`",
            entries.len()
        )));
    }
    let asking = async {
        // A probe lasts for one answer: it needs no pings.
        let dialled = dial(endpoint, KeepAlive::System).await.map_err(|error| unreached(endpoint, error))?;
        match ask(dialled.channel.clone(), service).await {
            Ok(status) => Ok(status),
            Err(status) => {
                let is_tcp = dialled.transport == Transport::Tcp;
                let wrong = if is_tcp { WrongPort::at(endpoint).await } else { None };
                Err(match wrong {
                    Some(WrongPort::Tls) => WrongPort::Tls.error(endpoint),
                    _ => dialled.why(to_error(&status, endpoint, service)),
                })
            }
        }
    };
    match tokio::time::timeout(timeout, asking).await {
        Ok(Ok(status)) => Ok(status == ServingStatus::Serving),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::DeadlineExceeded(format!(
            "the server at {endpoint} did not tell its health within {:.1} s",
            timeout.as_secs_f64()
        ))),
    }
}

async fn ask(channel: Channel, service: &str) -> std::result::Result<ServingStatus, Status> {
    let request = HealthCheckRequest { service: service.into() };
    Ok(HealthClient::new(channel).check(request).await?.into_inner().status())
}

fn unreached(endpoint: &Endpoint, error: Error) -> Error {
    match error {
        Error::Unavailable(reason) => Error::Unavailable(format!("no server at {endpoint}: {reason}")),
        other => other,
    }
}

fn to_error(status: &Status, endpoint: &Endpoint, service: &str) -> Error {
    match status.code() {
        Code::NotFound => Error::invalid(format!("the server at {endpoint} has no service `{service}`")),
        Code::Unimplemented => Error::Unimplemented(format!(
            "the server at {endpoint} does not tell its health (grpc.health.v1): it is of dm-reverb, or older than this \
             program"
        )),
        Code::DeadlineExceeded => Error::DeadlineExceeded(status.message().into()),
        Code::Unauthenticated | Code::PermissionDenied => error_of(status, endpoint.address.text(), ""),
        _ => Error::Unavailable(format!("no server at {endpoint}: {}", status.message())),
    }
}
