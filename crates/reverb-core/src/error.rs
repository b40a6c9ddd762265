//! Everything that can go wrong, once. The binding and the wire map each case to their own world.

/// The result of a fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong: what was expected, what came, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument, or a message from a peer, is not what the call takes.
    #[error("{0}")]
    InvalidArgument(String),
    /// A row of a batch is not acceptable; nothing of the batch was applied.
    #[error("row {row} of the batch: {reason} Nothing was inserted.")]
    InvalidRow {
        /// Index of the row in the batch.
        row: usize,
        /// The complaint about the row, a full sentence.
        reason: String,
    },
    /// No table of this name.
    #[error("Priority table {table} was not found; this server has: {known}")]
    TableNotFound {
        /// The name asked for.
        table: String,
        /// The names there are, joined by `, `.
        known: String,
    },
    /// The data does not fit the signature of the table.
    #[error("{0}")]
    SignatureMismatch(String),
    /// A priority the table cannot take.
    #[error("{0}")]
    InvalidPriority(String),
    /// An item larger than the table may become.
    #[error("the item has {size_bytes} bytes, more than max_bytes ({max_bytes}) of table `{table}`")]
    ItemTooLarge {
        /// The table.
        table: String,
        /// Bytes of the item's data.
        size_bytes: u64,
        /// The table's limit in bytes.
        max_bytes: u64,
    },
    /// A message, or a call's data, over the limit.
    #[error("{what} has {size_bytes} bytes, more than the {limit_bytes} bytes that {option} allows")]
    MessageTooLarge {
        /// What is too large.
        what: String,
        /// The option that sets the limit.
        option: String,
        /// Its size in bytes.
        size_bytes: u64,
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// A limit on the number of something was reached.
    #[error("{0}")]
    ResourceExhausted(String),
    /// A wait ended at its deadline.
    #[error("{0}")]
    DeadlineExceeded(String),
    /// The table, or the server, was stopped.
    #[error("{0}")]
    Cancelled(String),
    /// The server cannot be reached, or went away.
    #[error("{0}")]
    Unavailable(String),
    /// Bytes that do not decode.
    #[error("{0}")]
    DataLoss(String),
    /// A file or folder could not be read or written.
    #[error("{0}")]
    Storage(String),
    /// The server does not have the method or feature.
    #[error("{0}")]
    Unimplemented(String),
    /// A bug.
    #[error("{0}")]
    Internal(String),
}

impl Error {
    /// Shorthand for [`Error::InvalidArgument`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::InvalidArgument(message.into())
    }
}
