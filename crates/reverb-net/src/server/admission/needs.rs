//! The role that each method needs. The methods are those of the descriptors: one that is missing here is refused, and
//! fails a test.

use super::super::count_calls::METHODS;
use reverb_secure::Role;

const OURS: &str = "reverb.replay.v1.Replay";
const DM_REVERB: &str = "deepmind.reverb.ReverbService";
const HEALTH: &str = "grpc.health.v1.Health";
const REFLECTION: [&str; 2] = ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"];

/// Who may call a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Everyone, also without a token: probes have none.
    Nothing,
    /// Those with at least this role.
    Role(Role),
    /// Nobody, since nobody has said who may.
    Unsaid,
}

/// What the methods of [`METHODS`] need, in their order.
pub fn of_methods() -> Box<[Needs]> {
    METHODS.iter().map(|(service, method)| of(service, method)).collect()
}

fn of(service: &str, method: &str) -> Needs {
    match (service, method) {
        (HEALTH, _) => Needs::Nothing,
        // The server says that it has no such method, but not to everyone.
        (_, "other") => Needs::Role(Role::View),
        (service, "ServerReflectionInfo") if REFLECTION.contains(&service) => Needs::Role(Role::View),
        (OURS, "Hello" | "Info" | "Observe") => Needs::Role(Role::View),
        (OURS, "Sample" | "Peek" | "Get" | "Newer" | "Insert" | "Write" | "Mutate" | "Sums") => Needs::Role(Role::Use),
        (OURS, "Reset" | "Checkpoint" | "Configure" | "Bench") => Needs::Role(Role::Admin),
        (DM_REVERB, "ServerInfo" | "InitializeConnection") => Needs::Role(Role::View),
        (DM_REVERB, "SampleStream" | "InsertStream" | "MutatePriorities") => Needs::Role(Role::Use),
        (DM_REVERB, "Reset" | "Checkpoint") => Needs::Role(Role::Admin),
        _ => Needs::Unsaid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_says_what_it_needs() {
        let unsaid: Vec<_> = METHODS.iter().filter(|(service, method)| of(service, method) == Needs::Unsaid).collect();
        assert!(unsaid.is_empty(), "no role for {unsaid:?}: say in `of` who may call them");
        assert_eq!(of(OURS, "Future"), Needs::Unsaid);
        let open: Vec<_> = METHODS.iter().filter(|(service, method)| of(service, method) == Needs::Nothing).collect();
        assert!(open.iter().all(|(service, _)| *service == HEALTH), "{open:?}");
    }
}
