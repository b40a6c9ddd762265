//! The version and the capabilities that both halves of the protocol announce.

/// The version of `reverb.replay.v1`.
pub const VERSION: u32 = 1;

/// The server fills in the largest priority of a table in items that take it.
pub const LARGEST_PRIORITY: &str = "largest-priority";

/// The server makes a table's part in a race of several tables.
pub const RACE: &str = "race";

/// The server keeps the ratio of a table over all shards of its cluster.
pub const SUMS: &str = "sums";

/// The server has memory that it shares with clients of its host. Said by the server alone.
pub const SHARED_MEMORY: &str = "shared-memory";

/// The server reads data of chunks from memory that clients of its host share. Said by the server alone.
pub const SHARED_INSERTS: &str = "shared-inserts";

/// The caller may see numbers only: its token or certificate has the role `view`. Said by the server alone.
pub const VIEW_ONLY: &str = "view-only";

/// Features of this package beyond the first edition of that version. A peer may use those that both ends announce.
pub const CAPABILITIES: [&str; 6] = ["peer-names", "same-server", "heartbeats", LARGEST_PRIORITY, RACE, SUMS];
