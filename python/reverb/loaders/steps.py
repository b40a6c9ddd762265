"""What a loader does that may wait, for a thread that does it and for an event loop that awaits it.

A generator of steps asks `Ways` for what it needs. In a thread the answer is the result. For an event loop it is an
awaitable, which the generator yields to get the result. So in a thread, where nearly every batch is drawn, the
generator yields nothing.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from reverb._binding import Draw, SampledBatch
from reverb.aio.waits import result
from reverb.client import Client

T = TypeVar("T")

# A generator that yields awaitables, and gets the result of each.
Steps: TypeAlias = Generator[Awaitable[Any], Any, T]


class Ways(NamedTuple):
    """How to do what may wait.

    Attributes:
      are_awaited: Whether the other attributes return awaitables.
      begin: Begins a draw, as `begin_in_thread` does.
      arrival: Takes the batch of a draw, as `arrival_in_thread` does.
      pause: Waits for a number of seconds.
    """

    are_awaited: bool
    begin: Callable[..., Any]
    arrival: Callable[[Draw, float | None], Any]
    pause: Callable[[float], Any]


def begin_in_thread(
    client: Client,
    table: str,
    size: int,
    timeout: float | None,
    squeeze_time: bool,
    connect_timeout: float | None,
    by_caller: bool,
    at_once: bool,
    is_ahead: bool,
) -> Draw:
    """Begins a draw, and waits for a connection; see `Client.begin_sample` of the extension."""
    return client.engine.begin_sample(
        table, (size, size), timeout, squeeze_time, connect_timeout, by_caller, at_once, is_ahead
    )


async def begin_in_event_loop(
    client: Client,
    table: str,
    size: int,
    timeout: float | None,
    squeeze_time: bool,
    connect_timeout: float | None,
    _by_caller: bool,
    _at_once: bool,
    is_ahead: bool,
) -> Draw:
    """Begins a draw, and awaits a connection."""
    begin = client.calls.begin_sample
    draw: Draw = await result(begin(table, size, timeout, squeeze_time, connect_timeout, is_ahead))
    return draw


def arrival_in_thread(draw: Draw, seconds: float | None) -> SampledBatch | None:
    """Waits for the batch of a draw, and takes it; None if it is not here after so many seconds."""
    return draw.result(seconds)


async def arrival_in_event_loop(draw: Draw, seconds: float | None) -> SampledBatch | None:
    """Awaits the batch of a draw, and takes it; None if it is not here after so many seconds."""
    if not draw.is_ready():
        await result(draw.arrival(seconds))
    return draw.result(0.0)


IN_THREAD = Ways(are_awaited=False, begin=begin_in_thread, arrival=arrival_in_thread, pause=time.sleep)
IN_EVENT_LOOP = Ways(are_awaited=True, begin=begin_in_event_loop, arrival=arrival_in_event_loop, pause=asyncio.sleep)


def in_thread(steps: Steps[T]) -> T:
    """Returns the result of a generator that has the ways of a thread."""
    try:
        next(steps)
    except StopIteration as end:
        value: T = end.value
        return value
    raise AssertionError("a generator of steps in a thread yields nothing")


async def in_event_loop(steps: Steps[T]) -> T:
    """Awaits all steps, and returns the result of the generator. A cancelled step is withdrawn."""
    try:
        step = next(steps)
        while True:
            try:
                done = await step
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(done)
    except StopIteration as end:
        value: T = end.value
        return value
