"""Helpers of the tests of `reverb.aio`: running coroutines, and waiting in an event loop."""

import asyncio
import contextlib

from behaviour_support import PATIENCE_S

from reverb import aio


def run(main):
    """Runs a coroutine in a new event loop. Fails if it hangs."""
    return asyncio.run(asyncio.wait_for(main, 2 * PATIENCE_S))


async def eventually(condition):
    """Waits until `await condition()` is true. Fails if that never happens."""
    for _ in range(int(PATIENCE_S / 0.01)):
        if await condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the awaited state never came")


async def cancel(task):
    """Cancels a task and waits for its end."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


def waiting(client, table, count):
    """A condition: so many requests wait at a table."""

    async def is_waiting():
        info = (await client.server_info())[table]
        return info.waiting_inserts + info.waiting_samples == count

    return is_waiting


def connect(serve):
    """A client for asyncio of the last server, over its road."""
    return aio.Client(serve.address)
