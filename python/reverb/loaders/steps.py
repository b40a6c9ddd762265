"""What a loader does that may wait, in steps: a thread does each of them, and an event loop awaits it."""

import asyncio
import time
from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from reverb._binding import Draw, SampledBatch
from reverb.aio.waits import result
from reverb.client import Client

T = TypeVar("T")


class Begin(NamedTuple):
    """Begins a draw, whose result is a Draw; see `Client.begin_sample` of the extension."""

    client: Client
    table: str
    size: int
    timeout: float | None
    squeeze_time: bool
    connect_timeout: float | None
    by_caller: bool
    at_once: bool
    is_ahead: bool

    def do(self) -> Draw:
        """Waits for a connection."""
        begin, counts = self.client.engine.begin_sample, (self.size, self.size)
        return begin(
            self.table,
            counts,
            self.timeout,
            self.squeeze_time,
            self.connect_timeout,
            self.by_caller,
            self.at_once,
            self.is_ahead,
        )

    async def wait(self) -> Draw:
        """Awaits a connection."""
        begin, how = self.client.calls.begin_sample, (self.squeeze_time, self.connect_timeout, self.is_ahead)
        draw: Draw = await result(begin(self.table, self.size, self.timeout, *how))
        return draw


class Arrival(NamedTuple):
    """Takes the batch of a draw; None if it is not here after some seconds."""

    draw: Draw
    seconds: float | None

    def do(self) -> SampledBatch | None:
        """Waits for the batch."""
        return self.draw.result(self.seconds)

    async def wait(self) -> SampledBatch | None:
        """Awaits the batch."""
        if not self.draw.is_ready():
            await result(self.draw.arrival(self.seconds))
        return self.draw.result(0.0)


class Pause(NamedTuple):
    """Waits before another attempt."""

    seconds: float

    def do(self) -> None:
        """Sleeps."""
        time.sleep(self.seconds)

    async def wait(self) -> None:
        """Sleeps."""
        await asyncio.sleep(self.seconds)


# A generator of steps, which gets the result of each.
Steps: TypeAlias = Generator[Begin | Arrival | Pause, Any, T]


def in_thread(steps: Steps[T]) -> T:
    """Does all steps in this thread, and returns the result of the generator."""
    try:
        step = next(steps)
        while True:
            try:
                done = step.do()
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(done)
    except StopIteration as end:
        value: T = end.value
        return value


async def in_event_loop(steps: Steps[T]) -> T:
    """Awaits all steps, and returns the result of the generator. A cancelled step is withdrawn."""
    try:
        step = next(steps)
        while True:
            try:
                done = await step.wait()
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(done)
    except StopIteration as end:
        value: T = end.value
        return value
