"""What is left of a call of `reverb.aio` that is cancelled: see the table at the top of the package."""

import asyncio

import numpy as np
import pytest
from aio_support import cancel, connect, eventually, run, waiting
from behaviour_support import draw_values, info_of, insert_values, make_table

import reverb
from reverb.aio.tables import ServerTables


def values_of(batch):
    return np.ravel(batch.data[0]).tolist()


def test_cancelled_draw_is_withdrawn(serve):
    client = serve(reverb.Table.queue("table", 9))

    async def main():
        async with connect(serve) as aio:
            draw = asyncio.create_task(aio.sample_batch("table", 1))
            await eventually(waiting(aio, "table", 1))
            await cancel(draw)
            await eventually(waiting(aio, "table", 0))

    run(main())
    insert_values(client, [1])
    assert draw_values(client) == [1]


@pytest.mark.parametrize("moment", ["waits", "has-arrived"])
def test_samples_of_a_cancelled_draw_go_back(serve, moment):
    client = serve(reverb.Table.queue("table", 9))
    insert_values(client, range(4))

    async def main():
        async with connect(serve) as aio:
            draw = asyncio.create_task(aio.sample_batch("table", 2))
            if moment == "waits":
                await asyncio.sleep(0)
            elif moment == "has-arrived":
                # The loop is held until the batch is here, so the task has not gone on with it.
                await asyncio.sleep(0)
                held = serve.connect()
                while held.server_info()["table"].current_size > 2:
                    pass
            await cancel(draw)

            async def are_back():
                info = (await aio.server_info())["table"]
                return (info.current_size, info.undelivered_samples) == (4, 0)

            await eventually(are_back)
            return values_of(await aio.sample_batch("table", 4))

    assert run(main()) == [0, 1, 2, 3]


def test_samples_go_back_if_the_look_up_of_their_signature_is_cancelled(serve, monkeypatch):
    client = serve(reverb.Table.queue("table", 9, signature=reverb.TensorSpec((), np.int64)))
    insert_values(client, range(4))

    async def main():
        async with connect(serve) as client:
            with monkeypatch.context() as patch:
                patch.setattr(ServerTables, "_ask", lambda self: asyncio.sleep(60))
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(client.sample_batch("table", 2), 0.5)
            return (await client.sample_batch("table", 4)).data.ravel().tolist()

    assert run(main()) == [0, 1, 2, 3]


def test_timeout_of_asyncio_withdraws_the_draw(serve):
    client = serve(reverb.Table.queue("table", 9))

    async def main():
        async with connect(serve) as aio:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(aio.sample_batch("table", 1), 0.05)
            await eventually(waiting(aio, "table", 0))

    run(main())
    insert_values(client, [1])
    assert draw_values(client) == [1]


def test_draw_that_nobody_awaits_any_more_goes_back(serve):
    client = serve(reverb.Table.queue("table", 9))

    async def main():
        async with connect(serve) as aio:
            call = aio.sample_batch("table", 1)
            call.send(None)
            await eventually(waiting(aio, "table", 1))
            call.close()
            await eventually(waiting(aio, "table", 0))

    run(main())
    insert_values(client, [1])
    assert draw_values(client) == [1]


def test_cancelled_insert_that_waits_is_withdrawn(serve):
    client = serve(reverb.Table.queue("table", 1))
    insert_values(client, [0])

    async def main():
        async with connect(serve) as aio:
            insert = asyncio.create_task(aio.insert(np.int64(1), {"table": 1.0}))
            await eventually(waiting(aio, "table", 1))
            await cancel(insert)
            await eventually(waiting(aio, "table", 0))

    run(main())
    assert draw_values(client) == [0]
    assert info_of(client).current_size == 0


def test_cancelled_calls_of_a_writer_have_done_nothing(serve):
    client = serve(reverb.Table.queue("table", 1))
    insert_values(client, [0])

    async def main():
        async with connect(serve) as aio, aio.trajectory_writer(1, max_in_flight_items=1) as writer:
            await writer.append([np.int64(1)])
            await writer.create_item("table", 1.0, [writer.history[0][-1:]])
            append = asyncio.create_task(writer.append([np.int64(99)]))
            await cancel(append)
            assert (writer.episode_steps, len(writer.history[0])) == (1, 1)
            await writer.append([np.int64(2)])
            for _ in range(3):
                create = asyncio.create_task(writer.create_item("table", 1.0, [writer.history[0][-1:]]))
                await asyncio.sleep(0.02)
                await cancel(create)
            flush = asyncio.create_task(writer.flush())
            await asyncio.sleep(0.02)
            await cancel(flush)
            values = values_of(await aio.sample_batch("table", 2))
            await writer.create_item("table", 1.0, [writer.history[0][-1:]])
            await writer.flush()
            return values + values_of(await aio.sample_batch("table", 1))

    assert run(main()) == [0, 1, 2]
    assert info_of(client).current_size == 0


def test_cancelled_update_leaves_the_client_usable(serve):
    serve(make_table())

    async def main():
        async with connect(serve) as aio:
            for call in (aio.update_priorities("table", [1], 2.0), aio.mutate_priorities("table", {}, [1])):
                task = asyncio.create_task(call)
                await asyncio.sleep(0)
                await cancel(task)
            return await aio.server_info()

    assert "table" in run(main())
