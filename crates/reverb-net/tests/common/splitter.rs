//! A balancer that sends each stream of a connection to the next server, as balancers of HTTP/2 do by default.

use bytes::Bytes;
use h2::{RecvStream, SendStream, client, server};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::net::{TcpListener, TcpStream};
use tonic::codegen::http::Request;

/// Listens on a free port, which is returned, and spreads streams over servers on these ports.
pub async fn split_streams(ports: Vec<u16>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let next = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (ports, next) = (ports.clone(), next.clone());
            tokio::spawn(async move {
                let mut streams = server::handshake(socket).await.unwrap();
                while let Some(Ok((request, answer))) = streams.accept().await {
                    let port = ports[next.fetch_add(1, Relaxed) % ports.len()];
                    tokio::spawn(forward(port, request, answer));
                }
            });
        }
    });
    port
}

/// Ends without a word if either side has gone.
async fn forward(port: u16, request: Request<RecvStream>, mut answer: server::SendResponse<Bytes>) -> Option<()> {
    let socket = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let (server, connection) = client::handshake(socket).await.ok()?;
    tokio::spawn(connection);
    let (head, body) = request.into_parts();
    let (response, mut to_server) =
        server.ready().await.ok()?.send_request(Request::from_parts(head, ()), false).ok()?;
    tokio::spawn(async move { pump(body, &mut to_server).await });
    let (head, body) = response.await.ok()?.into_parts();
    let mut to_client = answer.send_response(tonic::codegen::http::Response::from_parts(head, ()), false).ok()?;
    pump(body, &mut to_client).await
}

/// Hands on all data and trailers. Ends without a word if either side has gone.
pub async fn pump(mut from: RecvStream, to: &mut SendStream<Bytes>) -> Option<()> {
    while let Some(data) = from.data().await {
        let data = data.ok()?;
        from.flow_control().release_capacity(data.len()).ok()?;
        to.send_data(data, false).ok()?;
    }
    match from.trailers().await.ok()? {
        Some(trailers) => to.send_trailers(trailers).ok(),
        None => to.send_data(Bytes::new(), true).ok(),
    }
}
