//! The reflection services of gRPC, by which tools such as grpcurl learn about the services and messages of a server.

use crate::DESCRIPTORS;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_reflection::server::Builder;

/// A reflection service that decodes the descriptors at the first call, since most servers are never asked.
#[derive(Debug, Clone)]
pub struct Reflection<const IS_ALPHA: bool>(Arc<OnceLock<Routes>>);

/// Makes the services, to be added to the routes of a server: version 1, and its predecessor that older tools ask.
pub fn services() -> (Reflection<false>, Reflection<true>) {
    let routes = Arc::default();
    (Reflection(Arc::clone(&routes)), Reflection(routes))
}

fn builder() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

fn routes() -> Routes {
    let expected = "the descriptors were made with this program";
    Routes::new(builder().build_v1().expect(expected)).add_service(builder().build_v1alpha().expect(expected))
}

impl NamedService for Reflection<false> {
    const NAME: &'static str = "grpc.reflection.v1.ServerReflection";
}

impl NamedService for Reflection<true> {
    const NAME: &'static str = "grpc.reflection.v1alpha.ServerReflection";
}

impl<const IS_ALPHA: bool> Service<Request<Body>> for Reflection<IS_ALPHA> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = <Routes as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0.get_or_init(routes).clone().call(request)
    }
}
