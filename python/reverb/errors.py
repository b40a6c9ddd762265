"""Everything that goes wrong has a class here.

    Exception
    └── ReverbError
        ├── DeadlineExceededError
        ├── InvalidArgumentError      (ValueError)
        │   ├── SignatureMismatchError
        │   ├── InvalidPriorityError
        │   ├── ItemTooLargeError
        │   └── MessageTooLargeError
        ├── TableNotFoundError        (RuntimeError, ValueError)
        ├── CancelledError            (RuntimeError)
        ├── UnavailableError          (RuntimeError)
        ├── ResourceExhaustedError    (IndexError)
        ├── DataLossError             (RuntimeError)
        ├── StorageError              (RuntimeError)
        ├── UnimplementedError        (NotImplementedError)
        └── InternalError             (RuntimeError)

The second base, in brackets, is the built-in class that the reference raises in the same case, so that programs which
catch that one go on working. The extension finds these classes by name as it raises.
"""

__all__ = [
    "CancelledError",
    "DataLossError",
    "DeadlineExceededError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidPriorityError",
    "ItemTooLargeError",
    "MessageTooLargeError",
    "ResourceExhaustedError",
    "ReverbError",
    "SignatureMismatchError",
    "StorageError",
    "TableNotFoundError",
    "UnavailableError",
    "UnimplementedError",
]


class ReverbError(Exception):
    """The root of all errors that are Reverb's own."""


class DeadlineExceededError(ReverbError):
    """The call did not end within its timeout. Says what it waited for, where that is known."""


class InvalidArgumentError(ReverbError, ValueError):
    """An argument that no state of the server could make valid."""


class SignatureMismatchError(InvalidArgumentError):
    """Data does not fit the signature of its table, or the columns that were there before."""


class InvalidPriorityError(InvalidArgumentError):
    """A priority that the table's selectors cannot work with, such as NaN or, where drawn by weight, a negative one."""


class ItemTooLargeError(InvalidArgumentError):
    """One item alone passes what the table may hold."""


class MessageTooLargeError(InvalidArgumentError):
    """A message passes the server's `max_message_size`."""


class TableNotFoundError(ReverbError, RuntimeError, ValueError):
    """No table of this name on the server. The reference raises RuntimeError on sampling and ValueError on insert."""


class CancelledError(ReverbError, RuntimeError):
    """The call was given up, for instance because the server stopped while it waited."""


class UnavailableError(ReverbError, RuntimeError):
    """The server cannot be reached, or has gone."""


class ResourceExhaustedError(ReverbError, IndexError):
    """A limit of the server, on bytes, streams or waiting requests, has been reached."""


class DataLossError(ReverbError, RuntimeError):
    """Stored or received data is damaged."""


class StorageError(ReverbError, RuntimeError):
    """A file or folder could not be read or written: no room, no permission, a broken disk."""


class UnimplementedError(ReverbError, NotImplementedError):
    """The server does not know this call."""


class InternalError(ReverbError, RuntimeError):
    """A defect: please report it."""
