"""The error classes of Reverb.

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
        │   ├── CallCancelledError    (UnavailableError)
        │   └── ServerStoppedError
        ├── UnavailableError          (RuntimeError)
        │   └── CallCancelledError
        ├── ResourceExhaustedError    (IndexError)
        ├── DataLossError             (RuntimeError)
        ├── StorageError              (RuntimeError)
        ├── UnauthenticatedError      (PermissionError)
        ├── PermissionDeniedError     (PermissionError)
        ├── UnimplementedError        (NotImplementedError)
        └── InternalError             (RuntimeError)

The second base, in parentheses, is the built-in class that dm-reverb raises in the same case, so programs that catch
the built-in class keep working. The extension looks these classes up by name when it raises them.
"""

__all__ = [
    "CallCancelledError",
    "CancelledError",
    "DataLossError",
    "DeadlineExceededError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidPriorityError",
    "ItemTooLargeError",
    "MessageTooLargeError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "ReverbError",
    "ServerStoppedError",
    "SignatureMismatchError",
    "StorageError",
    "TableNotFoundError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
]


class ReverbError(Exception):
    """The base class of all errors that Reverb defines.

    Attributes:
      is_transient: Whether the same call may succeed later, because the server was lost, stopped or not reached, and
        may come back.
      step_taken: Whether the call of a writer or an adder that raised the error has appended its step and queued its
        items, so that the program goes on with the next step. False if nothing was appended, and for all other calls.
        A call that reports an earlier item, which the server has refused, does its own work first.
    """

    is_transient = False
    step_taken: bool = False


class DeadlineExceededError(ReverbError):
    """The call did not finish within its timeout. The message says what the call waited for, if that is known.

    Attributes:
      was_reached: Whether a server was reached before the timeout.
    """

    was_reached = True


class InvalidArgumentError(ReverbError, ValueError):
    """An argument is invalid, whatever the state of the server."""


class SignatureMismatchError(InvalidArgumentError):
    """Data does not fit the signature of its table, or the columns of earlier data."""


class InvalidPriorityError(InvalidArgumentError):
    """The table's selectors do not accept a priority, such as NaN or, if items are drawn by weight, a negative one."""


class ItemTooLargeError(InvalidArgumentError):
    """A single item is larger than the byte limit of its table, or than 4 GiB."""


class MessageTooLargeError(InvalidArgumentError):
    """A message exceeds the server's `max_message_size`."""


class TableNotFoundError(ReverbError, RuntimeError, ValueError):
    """The server has no table of this name. dm-reverb raises RuntimeError when sampling and ValueError on insert."""


class CancelledError(ReverbError, RuntimeError):
    """The call was cancelled, for instance because the server of this process stopped while the call waited.

    The stop of a server in another process is a `CallCancelledError`, which is an `UnavailableError`, too.
    """

    is_transient = True


class UnavailableError(ReverbError, RuntimeError):
    """The server in another process cannot be reached, was stopped, or the connection to it was lost.

    It is not transient if a balancer spreads the streams of the client over several servers, or if nobody knows what
    became of an insert.
    """

    is_transient = True

    @property
    def may_pass(self) -> bool:
        """The same as `is_transient`, for programs of earlier versions."""
        return self.is_transient

    @may_pass.setter
    def may_pass(self, may_pass: bool) -> None:
        # Errors that earlier versions pickled have it.
        self.is_transient = may_pass


class CallCancelledError(UnavailableError, CancelledError):
    """A server in another process was stopped while the call waited. A new server may come back at its address."""


class ServerStoppedError(CancelledError):
    """A server in another process was stopped for good, and no other answers at its address.

    It is not an `UnavailableError`, so programs that wait for a server to come back end instead. Nothing is remembered:
    a later call looks for a server at the address once. A writer that has raised the error has ended, and its calls
    raise it again: make a new writer.
    """

    is_transient = False


class ResourceExhaustedError(ReverbError, IndexError):
    """The server has reached a limit on bytes, streams or waiting requests."""


class DataLossError(ReverbError, RuntimeError):
    """Stored or received data is damaged."""


class StorageError(ReverbError, RuntimeError):
    """A file or folder could not be read or written, for lack of space or permission or because of a disk error."""


class UnauthenticatedError(ReverbError, PermissionError):
    """One of server and client does not trust the other: by their certificates, or by the client's token.

    The token is missing or unknown, or was revoked. Nothing tries again.
    """


class PermissionDeniedError(ReverbError, PermissionError):
    """The role of the client's token is too small for the call, or a Unix socket belongs to another user.

    Nothing tries again.
    """


class UnimplementedError(ReverbError, NotImplementedError):
    """The server does not implement this call."""


class InternalError(ReverbError, RuntimeError):
    """A bug in Reverb. Please report it."""
