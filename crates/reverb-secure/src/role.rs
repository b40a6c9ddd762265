//! What a caller may do.

use std::fmt::{self, Display, Formatter};

/// What a caller may do. Each role may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Sees numbers: sizes, rates, waits. Never the content of items.
    View,
    /// Reads and writes items.
    Use,
    /// Resets, saves and configures tables.
    Admin,
}

impl Role {
    /// All roles, the smallest first.
    pub const ALL: [Self; 3] = [Self::View, Self::Use, Self::Admin];

    /// Returns the name, as files and people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Use => "use",
            Self::Admin => "admin",
        }
    }

    /// Returns the role of a name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

impl Display for Role {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
