"""Helpers of the tests of `reverb.aio`: running coroutines, and waiting in an event loop."""

import asyncio
import contextlib

from behaviour_support import PATIENCE_S

from reverb import aio
from reverb.aio.tables import ServerTables
from reverb.reverb_types import TableInfo


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


@contextlib.contextmanager
def counted(monkeypatch):
    """Counts the questions for the tables of a server, and which of them were parsed, while it is entered."""
    asked, parsed = [], []
    ask, parse = ServerTables._ask, TableInfo.from_serialized_status

    async def counting_ask(tables):
        asked.append(tables)
        return await ask(tables)

    def counting_parse(status):
        info = parse(status)
        parsed.append(info.name)
        return info

    with monkeypatch.context() as patches:
        patches.setattr(ServerTables, "_ask", counting_ask)
        patches.setattr(TableInfo, "from_serialized_status", counting_parse)
        yield asked, parsed


def waiting(client, table, count):
    """A condition: so many requests wait at a table."""

    async def is_waiting():
        info = (await client.server_info())[table]
        return info.waiting_inserts + info.waiting_samples == count

    return is_waiting


def connect(serve):
    """A client for asyncio of the last server, over its road."""
    return aio.Client(serve.address)
