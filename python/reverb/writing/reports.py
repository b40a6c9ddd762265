"""Errors that report what became of earlier items, raised once the call has done its own work."""

from collections import deque
from collections.abc import Callable
from typing import Any


class Reports:
    """Keeps the errors of parts of a call that have done their work, so that the other parts are done as well.

    A call raises one of them. Later calls of the same writer raise the others, and its end logs those that are left.

    Attributes:
      kept: The errors, in the order in which they are raised. They have no tracebacks, whose frames refer to the
        writer.
    """

    __slots__ = ("_has_failed", "kept")

    def __init__(self) -> None:
        self.kept: deque[BaseException] = deque()
        self._has_failed = False

    def call(self, part: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        """Calls a part. An error with `step_taken` is kept for `finish`.

        Args:
          part: Function to call with the other arguments.
          *args: Its positional arguments.
          **kwargs: Its arguments by name.
        """
        try:
            part(*args, **kwargs)
        except BaseException as error:
            if not getattr(error, "step_taken", False):
                raise
            self._keep(error)

    def call_unless_interrupted(self, part: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        """Calls one of many parts that may each wait, as `call` does. Ctrl-C ends the wait of all: it is not kept.

        Its `step_taken` is then false, since the other parts were not done.

        Args:
          part: Function to call with the other arguments.
          *args: Its positional arguments.
          **kwargs: Its arguments by name.
        """
        self.call(part, *args, **kwargs)
        if self.kept and not isinstance(self.kept[-1], Exception):
            raise _with_step(self.kept.pop(), False)

    def finish_part(self, part: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        """Calls a part of a step that is appended already. Every error is kept, and gets `step_taken`.

        Args:
          part: Function to call with the other arguments.
          *args: Its positional arguments.
          **kwargs: Its arguments by name.
        """
        try:
            part(*args, **kwargs)
        except BaseException as error:
            self._has_failed |= not getattr(error, "step_taken", False)
            self._keep(_with_step(error, True))

    def take_failed(self) -> bool:
        """Whether a part that `finish_part` has called since the last time may not have done its work."""
        has_failed, self._has_failed = self._has_failed, False
        return has_failed

    def finish(self, *, step_taken: bool = True) -> None:
        """Raises the first of the errors that were kept, if there is one.

        Args:
          step_taken: Whether the call that raises the error has appended its step.
        """
        if self.kept:
            raise _with_step(self.kept.popleft(), step_taken)

    def take_texts(self) -> list[str]:
        """The texts of the errors that no call has raised, which no call will raise any more."""
        texts = [str(error) or type(error).__name__ for error in self.kept]
        self.kept.clear()
        return texts

    def _keep(self, error: BaseException) -> None:
        self.kept.append(error.with_traceback(None))


def _with_step(error: BaseException, step_taken: bool) -> BaseException:
    error.step_taken = step_taken  # type: ignore[attr-defined]
    return error
