//! The kinds of requests that wait at a table.

/// The kind of a waiting request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// An insert.
    Insert,
    /// A draw.
    Sample,
}

impl Operation {
    /// Returns the name of the kind, for display.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Sample => "sample",
        }
    }
}
