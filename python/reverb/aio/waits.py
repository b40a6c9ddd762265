"""How coroutines wait for calls of the extension, without a thread."""

import asyncio
import itertools
import weakref
from collections.abc import Callable
from typing import Any

from reverb._binding import Call, Wakeups
from reverb.data.timeouts import PAUSE_S, Losses
from reverb.errors import ReverbError

# The most coroutines that one step of the event loop wakes. The others are woken by its next steps.
_AT_ONCE = 64


class Waits:
    """The calls of one event loop that coroutines wait for.

    The extension adds the number of a call that has ended to `wakeups`, whose socket the loop watches.

    Args:
      loop: The running event loop.

    Attributes:
      wakeups: What calls add their numbers to.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.wakeups = Wakeups()
        self._numbers = itertools.count()
        # By the number of the call.
        self._futures: dict[int, asyncio.Future[None]] = {}
        loop.add_reader(self.wakeups.fileno(), self._wake)

    async def result(self, call: Call) -> Any:
        """The result of a call.

        Gives the other tasks of the loop a turn in any case. If the coroutine is cancelled or closed before it goes on
        with the result, the call is withdrawn, and samples that have arrived go back to their table.

        Args:
          call: A call in progress.

        Raises:
          asyncio.CancelledError: The task was cancelled.
          ReverbError: The error of the call.
        """
        number = next(self._numbers)
        future = self._futures[number] = asyncio.get_running_loop().create_future()
        try:
            if call.wake(self.wakeups, number):
                await future
            else:
                await asyncio.sleep(0)
            return call.result()
        except BaseException:
            call.cancel()
            raise
        finally:
            self._futures.pop(number, None)

    def _wake(self) -> None:
        for number in self.wakeups.take(_AT_ONCE):
            future = self._futures.get(number)
            if future is not None and not future.done():
                future.set_result(None)


_of_loops: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Waits]" = weakref.WeakKeyDictionary()


def waits() -> Waits:
    """The waits of the running event loop.

    Raises:
      RuntimeError: No event loop runs in this thread.
      NotImplementedError: The event loop cannot watch sockets.
    """
    loop = asyncio.get_running_loop()
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = Waits(loop)
    return found


async def result(call: Call) -> Any:
    """The result of a call; see `Waits.result`."""
    return await waits().result(call)


async def persistent_result(call: Callable[[], Call], reach: Callable[[float | None], Call], losses: Losses) -> Any:
    """The result of a call that changes nothing, and is made again while its server is lost.

    Args:
      call: Function that begins the call.
      reach: Function that begins a short call with a timeout in seconds; None for no limit.
      losses: What tells whether to make it again.
    """
    while True:
        try:
            if losses.is_lost:
                await result(reach(losses.limit()))
            losses.begin()
            return await result(call())
        except ReverbError as error:
            losses.note(error)
        await asyncio.sleep(PAUSE_S)
