//! The name under which clients of dm-reverb are shown.

/// Clients of dm-reverb do not say their names. Long waits of a program are reported once for each name.
pub const NAME_OF_CLIENTS: &str = "dm-reverb";
