"""The tables of a client's server, which all its calls and writers ask for together."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from reverb import _binding
from reverb.aio.waits import result
from reverb.reverb_types import TableInfo


class _Answer(NamedTuple):
    """What a server has answered, and the number of the connection."""

    tables: _binding.Tables
    connection: int | None


class _Asking:
    """A question that tasks of one event loop wait for. The last of them that is cancelled withdraws it."""

    def __init__(self, task: asyncio.Task[_Answer]) -> None:
        self.task = task
        self.waiting = 0


class ServerTables:
    """The tables of a client's server. They are asked for once a connection, and by many tasks with one question.

    Args:
      calls: The calls of the client.
    """

    def __init__(self, calls: _binding.Calls) -> None:
        # What compares keys and parses infos. A step of a session would otherwise wait for the imports.
        import tree  # noqa: F401

        from reverb.cc import schema_pb2  # noqa: F401

        self._calls = calls
        self._answer: _Answer | None = None
        self._asking: dict[asyncio.AbstractEventLoop, _Asking] = {}

    async def known(self, timeout: float | None = None) -> _binding.Tables:
        """The tables as they were when somebody asked first. Their signatures last as long as the connection.

        Args:
          timeout: Time limit in seconds; None means no limit.
        """
        answer = self._answer
        if answer is None or answer.connection is None or answer.connection != self._calls.connection():
            return await self.asked(timeout)
        return answer.tables

    async def asked(self, timeout: float | None = None) -> _binding.Tables:
        """The tables as the server describes them to this question, or to one that is under way.

        Args:
          timeout: Time limit in seconds; None means no limit.

        Raises:
          DeadlineExceededError: The server did not answer within the timeout.
        """
        loop = asyncio.get_running_loop()
        asking = self._asking.get(loop)
        if asking is None or asking.task.done():
            asking = self._asking[loop] = _Asking(loop.create_task(self._ask()))
        asking.waiting += 1
        try:
            done, _ = await asyncio.wait([asking.task], timeout=timeout)
        finally:
            asking.waiting -= 1
            if not asking.waiting:
                asking.task.cancel()
                if self._asking.get(loop) is asking:
                    del self._asking[loop]
        if done:
            return asking.task.result().tables
        # Says why there is no answer.
        tables: _binding.Tables = await result(self._calls.tables(0.0))
        return tables

    async def _ask(self) -> _Answer:
        tables: _binding.Tables = await result(self._calls.tables(None))
        self._answer = _Answer(tables, self._calls.connection())
        return self._answer


def info_of(tables: _binding.Tables, table: str) -> TableInfo:
    """The info of one of these tables. The others are not parsed.

    Args:
      tables: The tables of a server.
      table: Name of the table.

    Raises:
      TableNotFoundError: The server has no such table.
    """
    return TableInfo.from_serialized_status(tables.status(table))
