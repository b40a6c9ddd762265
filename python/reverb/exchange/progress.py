"""Progress bars for long imports and exports."""

from types import TracebackType
from typing import Any


class Progress:
    """A progress bar on standard error, shown if that is a terminal and `rich` is installed. A context manager.

    Args:
      wanted: Whether to show a bar at all.
      what: Name of the things that are counted.
      total: Number of things in all; None if it is not known.
    """

    def __init__(self, wanted: bool, what: str, total: int | None) -> None:
        self._bar = _bar(what) if wanted else None
        self._what = what
        self._total = total
        self._task: Any = None

    def __enter__(self) -> "Progress":
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=self._total)
        return self

    def advance(self, count: int = 1) -> None:
        """Moves the bar forward by a count."""
        if self._bar is not None:
            self._bar.advance(self._task, count)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def _bar(what: str) -> Any:
    try:
        from rich import progress
        from rich.console import Console
    except ImportError:
        return None
    console = Console(stderr=True)
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    return progress.Progress(*columns, console=console) if console.is_terminal else None
