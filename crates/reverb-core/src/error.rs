//! All errors of the crates, in one enum. The binding and the wire each map its cases once.

/// The result of a fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error, which says what was expected, what was found, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An argument or a message from a peer is not valid.
    #[error("{0}")]
    InvalidArgument(String),
    /// A row of a batch is not acceptable; nothing of the batch was applied.
    #[error("row {row} of the batch: {reason} Nothing was inserted.")]
    InvalidRow {
        /// Index of the row in the batch.
        row: usize,
        /// The reason, as a full sentence.
        reason: String,
    },
    /// No table has this name.
    #[error("Priority table {table} was not found; this server has: {known}")]
    TableNotFound {
        /// The requested name.
        table: String,
        /// The names of the existing tables, joined by `, `.
        known: String,
    },
    /// The data does not fit the signature of the table.
    #[error("{0}")]
    SignatureMismatch(String),
    /// The table cannot take this priority.
    #[error("{0}")]
    InvalidPriority(String),
    /// The item is larger than the table may become, or than any item may be.
    #[error("the item has {size_bytes} bytes, more than {} ({max_bytes}) of table `{table}`", limit_name(*max_bytes))]
    ItemTooLarge {
        /// Name of the table.
        table: String,
        /// Size of the item's data in bytes.
        size_bytes: u64,
        /// The table's limit in bytes, or [`crate::MAX_ITEM_BYTES`].
        max_bytes: u64,
    },
    /// A message, or the data of a call, exceeds the limit.
    #[error("{what} has {size_bytes} bytes, more than the {limit_bytes} bytes that {option} allows")]
    MessageTooLarge {
        /// The thing that is too large.
        what: String,
        /// The name of the option that sets the limit.
        option: String,
        /// Its size in bytes.
        size_bytes: u64,
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// A limit on the number of something was reached.
    #[error("{0}")]
    ResourceExhausted(String),
    /// The deadline passed while the call waited.
    #[error("{0}")]
    DeadlineExceeded(String),
    /// The deadline passed before a server could be reached.
    #[error("{0}")]
    Unreached(String),
    /// The table, or the server, was stopped.
    #[error("{0}")]
    Cancelled(String),
    /// A server elsewhere has cancelled the call, because it was stopped. To the caller, that server is away.
    #[error("{0}")]
    CallCancelled(String),
    /// A server elsewhere has said that it was stopped for good, and no other answers at its address.
    #[error("{0}")]
    ServerStopped(String),
    /// The server cannot be reached, or the connection was lost.
    #[error("{0}")]
    Unavailable(String),
    /// A server got a call or stream that was meant for another one, and has applied nothing of it.
    #[error(
        "streams of one client reach different servers ({expected}, {reached}): a balancer splits it; use mode tcp, or \
         stick by the header reverb-session"
    )]
    SplitClient {
        /// The first digits of the id of the server that answered the first call of the connection.
        expected: String,
        /// The first digits of the id of the server that was reached.
        reached: String,
    },
    /// The bytes do not decode.
    #[error("{0}")]
    DataLoss(String),
    /// A file or folder could not be read or written.
    #[error("{0}")]
    Storage(String),
    /// One end does not trust the other, or has not proven who it is.
    #[error("{0}")]
    Unauthenticated(String),
    /// The other end is known, and may not do this.
    #[error("{0}")]
    PermissionDenied(String),
    /// The server does not have the method or feature.
    #[error("{0}")]
    Unimplemented(String),
    /// The server was lost or stopped after it got an insert, so nobody knows which items are in their tables. The
    /// error inside says what happened. The text is dm-reverb's, because programs compare it.
    #[error("Error when confirming that all items written to table.")]
    Unconfirmed(#[source] Box<Error>),
    /// An internal error, caused by a bug.
    #[error("{0}")]
    Internal(String),
}

impl Error {
    /// Creates an [`Error::InvalidArgument`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::InvalidArgument(message.into())
    }

    /// Returns the name of what users tell apart, for the classes of a binding. Several cases may be one to them.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unconfirmed(cause) => cause.kind(),
            Self::InvalidArgument(_) => "InvalidArgument",
            Self::InvalidRow { .. } | Self::InvalidPriority(_) => "InvalidPriority",
            Self::TableNotFound { .. } => "TableNotFound",
            Self::SignatureMismatch(_) => "SignatureMismatch",
            Self::ItemTooLarge { .. } => "ItemTooLarge",
            Self::MessageTooLarge { .. } => "MessageTooLarge",
            Self::ResourceExhausted(_) => "ResourceExhausted",
            Self::DeadlineExceeded(_) | Self::Unreached(_) => "DeadlineExceeded",
            Self::Cancelled(_) => "Cancelled",
            Self::CallCancelled(_) => "CallCancelled",
            Self::ServerStopped(_) => "ServerStopped",
            Self::Unavailable(_) | Self::SplitClient { .. } => "Unavailable",
            Self::DataLoss(_) => "DataLoss",
            Self::Unimplemented(_) => "Unimplemented",
            Self::Storage(_) => "Storage",
            Self::Unauthenticated(_) => "Unauthenticated",
            Self::PermissionDenied(_) => "PermissionDenied",
            Self::Internal(_) => "Internal",
        }
    }

    /// Whether the same call may succeed later, because the server was lost, stopped or not reached, and may come back.
    /// Whatever waits for a server decides by this whether to go on.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Unreached(_) | Self::Cancelled(_) | Self::CallCancelled(_))
    }

    /// Whether one end does not let the other do this. Whatever tries again elsewhere or later does not after a refusal.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Unauthenticated(_) | Self::PermissionDenied(_))
    }

    /// Whether a server has said that it was stopped for good.
    pub fn is_for_good(&self) -> bool {
        match self {
            Self::Unconfirmed(cause) => cause.is_for_good(),
            error => matches!(error, Self::ServerStopped(_)),
        }
    }

    /// The same error where another server has taken the place of the one that was stopped for good.
    #[must_use]
    pub fn with_successor(self) -> Self {
        match self {
            Self::ServerStopped(text) => Self::CallCancelled(text),
            Self::Unconfirmed(cause) => Self::Unconfirmed(Box::new(cause.with_successor())),
            error => error,
        }
    }

    /// The error of an insert that a server has got: an [`Error::Unconfirmed`] if the server was lost or stopped.
    #[must_use]
    pub fn of_sent_insert(self) -> Self {
        if self.is_transient() || self.is_for_good() { Self::Unconfirmed(Box::new(self)) } else { self }
    }

    /// Adds a remark to the text, unless the text consists of facts only.
    #[must_use]
    pub fn with_remark(mut self, remark: &str) -> Self {
        match &mut self {
            Self::InvalidArgument(text)
            | Self::TableNotFound { known: text, .. }
            | Self::SignatureMismatch(text)
            | Self::InvalidPriority(text)
            | Self::ResourceExhausted(text)
            | Self::DeadlineExceeded(text)
            | Self::Unreached(text)
            | Self::Cancelled(text)
            | Self::CallCancelled(text)
            | Self::ServerStopped(text)
            | Self::Unavailable(text)
            | Self::DataLoss(text)
            | Self::Storage(text)
            | Self::Unauthenticated(text)
            | Self::PermissionDenied(text)
            | Self::Unimplemented(text)
            | Self::Internal(text) => text.push_str(remark),
            Self::InvalidRow { .. }
            | Self::ItemTooLarge { .. }
            | Self::MessageTooLarge { .. }
            | Self::SplitClient { .. }
            | Self::Unconfirmed(_) => {}
        }
        self
    }
}

/// The name of the limit that an item exceeds.
fn limit_name(max_bytes: u64) -> &'static str {
    if max_bytes == crate::MAX_ITEM_BYTES { "the maximum size of an item" } else { "max_bytes" }
}
