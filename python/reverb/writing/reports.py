"""Errors that report what became of earlier items, raised once the call has done its own work."""

from collections import deque
from collections.abc import Callable
from typing import Any


class Reports:
    """Keeps the errors of parts of a call that have done their work, so that the other parts are done as well."""

    def __init__(self) -> None:
        self._kept: deque[BaseException] = deque()

    def __len__(self) -> int:
        return len(self._kept)

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
            self._kept.append(error)

    def call_unless_interrupted(self, part: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        """Calls one of many parts that may each wait, as `call` does. Ctrl-C ends the wait of all: it is not kept.

        Args:
          part: Function to call with the other arguments.
          *args: Its positional arguments.
          **kwargs: Its arguments by name.
        """
        self.call(part, *args, **kwargs)
        if self._kept and not isinstance(self._kept[-1], Exception):
            raise self._kept.pop()

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
            error.step_taken = True  # type: ignore[attr-defined]
            self._kept.append(error)

    def finish(self) -> None:
        """Raises the first of the errors that were kept, if there is one. The next calls raise the others."""
        if self._kept:
            raise self._kept.popleft()
