//! Counts of the calls that a server has answered, by method and result.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Stands for all names that the server does not know, which peers make up.
const OTHER: &str = "other";

/// The names of the codes of gRPC, by number, as other servers' metrics write them.
pub const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// Services and their methods, in order. The method `other` of a service, and the service `other`, stand for all names
/// that the server does not know.
pub type Methods = &'static [(&'static str, &'static str)];

/// Counts of finished calls and streams. Calls within the process bypass gRPC and are not counted.
#[derive(Debug)]
pub struct Calls {
    methods: Methods,
    /// By method, in the order of `methods`, then by code.
    counts: Box<[[AtomicU64; CODES.len()]]>,
}

/// The number of calls of one method that ended with one code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallCount {
    /// Name of the service, such as `reverb.replay.v1.Replay`; `other` if the server does not have it.
    pub service: &'static str,
    /// Name of the method; `other` if the service does not have it.
    pub method: &'static str,
    /// Name of the code, such as `OK` or `InvalidArgument`.
    pub code: &'static str,
    /// Number of calls.
    pub count: u64,
}

impl Calls {
    /// Counts no call yet.
    pub fn new(methods: Methods) -> Self {
        Self { methods, counts: methods.iter().map(|_| Default::default()).collect() }
    }

    /// Counts a call of a method, by its place from [`find`](Self::find), that ended with a code.
    pub fn count(&self, method: usize, code: usize) {
        self.counts[method][code].fetch_add(1, Relaxed);
    }

    /// Returns the counts that are not zero.
    pub fn counts(&self) -> Vec<CallCount> {
        let of_method = |(&(service, method), counts): (&(&'static str, &'static str), &[AtomicU64; CODES.len()])| {
            let of_code = |(&code, count): (&&'static str, u64)| CallCount { service, method, code, count };
            let counts = counts.each_ref().map(|count| count.load(Relaxed));
            CODES.iter().zip(counts).filter(|(_, count)| *count > 0).map(of_code).collect::<Vec<_>>()
        };
        self.methods.iter().zip(&self.counts).flat_map(of_method).collect()
    }

    /// Returns the place of the method that a path names, such as `/reverb.replay.v1.Replay/Insert`.
    pub fn find(&self, path: &str) -> usize {
        let (service, method) = path.strip_prefix('/').and_then(|path| path.split_once('/')).unwrap_or((OTHER, OTHER));
        let place = |name: (&str, &str)| self.methods.binary_search_by(|known| (*known).cmp(&name));
        let found = place((service, method)).or_else(|_| place((service, OTHER))).or_else(|_| place((OTHER, OTHER)));
        found.expect("the list has a place for other services")
    }
}
