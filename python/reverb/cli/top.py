"""`reverb top`: a screen about servers that is drawn anew each second, in the terminal's alternate screen."""

import contextlib
import os
import queue
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, TypeAlias

from rich.console import Console
from rich.live import Live

from reverb._shutdown import ExitOnSigterm
from reverb.cli.cluster_observing import ClusterObservation, ClusterObserver
from reverb.cli.observing import Observation, Observer
from reverb.cli.top_view import ORDERS, View
from reverb.data.endpoint import Endpoint

# Time between two looks.
_PERIOD_S = 1.0
# How often keys and the size of the terminal are looked at.
_TURN_S = 0.1
# What looks at a server or at a cluster, and what it sees.
_Observer: TypeAlias = Observer | ClusterObserver
_Seen: TypeAlias = Observation | ClusterObservation
# Width of the text in a pipe, unless COLUMNS says it. Nothing is cut then.
_PIPE_WIDTH = 240


def show(endpoint: Endpoint, timeout: float) -> None:
    """Shows a server or a cluster until `q` or Ctrl-C, or prints one screen if the output is not a terminal."""
    console = Console()
    observer = Observer(endpoint) if endpoint.cluster is None else ClusterObserver(endpoint)
    first = observer.look(timeout)
    if not console.is_terminal or console.is_dumb_terminal:
        time.sleep(_PERIOD_S)
        console = Console(width=None if os.environ.get("COLUMNS", "").isdigit() else _PIPE_WIDTH)
        console.print(View(observer.look(timeout), endpoint.address))
        return
    # A terminal must be restored, whatever ends the program.
    ExitOnSigterm().begin()
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGHUP, lambda number, frame: sys.exit(128 + number))
    _Screen(console, observer, first, endpoint.address, timeout).run()


class _Screen:
    """The loop over looks, keys and drawings.

    Args:
      console: Terminal that shows the tables and reads the keys.
      observer: What looks at the server or at the cluster.
      first: The first look.
      address: Address of the server, as the user gave it.
      timeout: Seconds to wait for each look.
    """

    def __init__(self, console: Console, observer: _Observer, first: _Seen, address: str, timeout: float) -> None:
        self._console = console
        self._looks = _Looks(observer, timeout)
        self._view = View(first, address, note="")
        self._is_paused = False
        self._is_done = False
        self._must_suspend = False

    def run(self) -> None:
        """Draws until a key ends it.

        Raises:
          UnavailableError, DeadlineExceededError: The server was lost, or all shards. The terminal has been restored.
        """
        before = signal.signal(signal.SIGTSTP, self._suspend)
        try:
            while not self._is_done:
                with _keys() as keys, Live(console=self._console, screen=True, auto_refresh=False) as live:
                    self._loop(live, keys)
                if self._must_suspend:
                    self._must_suspend = False
                    _stop_process()
        finally:
            signal.signal(signal.SIGTSTP, before)

    def _loop(self, live: Live, keys: int | None) -> None:
        self._draw(live)
        size = self._console.size
        while not self._is_done and not self._must_suspend:
            pressed = _pressed(keys)
            for key in pressed:
                self._press(key)
            seen = self._looks.take()
            if seen is not None and not self._is_paused:
                self._view.seen = seen
            if pressed or size != self._console.size or (seen is not None and not self._is_paused):
                size = self._console.size
                self._draw(live)

    def _draw(self, live: Live) -> None:
        order = ORDERS[self._view.order][0]
        paused = "  PAUSED" if self._is_paused else ""
        self._view.note = f" q quit  s sort: {order}  c clients  w waits  p pause{paused} "
        live.update(self._view, refresh=True)

    def _press(self, key: str) -> None:
        view = self._view
        if key == "q":
            self._is_done = True
        elif key == "s":
            view.order = (view.order + 1) % len(ORDERS)
        elif key == "c":
            view.has_clients = not view.has_clients
        elif key == "w":
            view.has_waits = not view.has_waits
        elif key == "p":
            self._is_paused = not self._is_paused

    def _suspend(self, number: int, frame: object) -> None:
        self._must_suspend = True


def _stop_process() -> None:
    """Stops, as Ctrl-Z asks, with the terminal restored. Returns when the shell lets the process go on."""
    handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, handler)


class _Looks:
    """Looks once a period on a thread of its own, so that keys are heard while a server is slow to answer.

    Args:
      observer: What looks at the server or at the cluster.
      timeout: Seconds to wait for each look.
    """

    def __init__(self, observer: _Observer, timeout: float) -> None:
        self._seen: queue.SimpleQueue[_Seen | Exception] = queue.SimpleQueue()
        threading.Thread(target=self._run, args=(observer, timeout), name="reverb-top", daemon=True).start()

    def _run(self, observer: _Observer, timeout: float) -> None:
        due = time.monotonic()
        while True:
            due = max(due + _PERIOD_S, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                self._seen.put(observer.look(timeout))
            except Exception as error:  # `take` raises it on the thread that can restore the terminal.
                self._seen.put(error)
                return

    def take(self) -> _Seen | None:
        """Returns the newest look since the last call, or None.

        Raises:
          UnavailableError, DeadlineExceededError: The server was lost, or all shards.
        """
        newest = None
        with contextlib.suppress(queue.Empty):
            while True:
                seen = self._seen.get_nowait()
                if isinstance(seen, Exception):
                    raise seen
                newest = seen
        return newest


@contextlib.contextmanager
def _keys() -> Iterator[int | None]:
    """Makes the terminal pass on single keys without showing them. Its file, or None if the input is not a terminal."""
    if not sys.stdin.isatty():
        yield None
        return
    import termios
    import tty

    file = sys.stdin.fileno()
    before: list[Any] = termios.tcgetattr(file)
    try:
        tty.setcbreak(file)
        yield file
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)


def _pressed(keys: int | None) -> str:
    """The keys that were pressed. Waits a turn for one."""
    if keys is None:
        time.sleep(_TURN_S)
        return ""
    ready, _, _ = select.select([keys], [], [], _TURN_S)
    return os.read(keys, 1024).decode("ascii", "replace") if ready else ""
