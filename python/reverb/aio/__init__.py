"""Clients, writers and loaders for asyncio: what waits is awaited, and no call needs a thread.

    async with reverb.aio.Client("localhost:8000") as client:
        await client.insert({"reward": 1.0}, {"replay": 1.0})
        batch = await client.sample_batch("replay", 256)

A call that is cancelled is withdrawn:

    cancelled                          afterwards
    sample_batch, a loader's batch     the samples are back in their table, also if they had arrived
    append, create_item                nothing was done, and the call may be repeated
    insert, update, delete             unknown, as after a lost connection
    get, wait_newer, server_info       nothing was changed, and the call may be repeated
    flush, end_episode                 the items stay queued, and are sent
"""

from reverb.aio.client import Client
from reverb.aio.writers import BatchedWriter, StructuredWriter, TrajectoryWriter

__all__ = ["BatchedWriter", "Client", "StructuredWriter", "TrajectoryWriter"]
