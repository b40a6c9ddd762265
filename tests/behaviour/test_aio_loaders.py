"""`async for batch in loader`: the batches of the loader, and waits that hold no other task."""

import asyncio

import numpy as np
import pytest
from aio_support import cancel, connect, eventually, run, waiting
from behaviour_support import draw_values, info_of, insert_values, make_table

import reverb
from reverb import errors
from reverb.loaders import NumpyLoader
from reverb.loaders.assembly import Assembly


def values_of(batch):
    return np.ravel(batch.data[0]).tolist()


async def taken(loader):
    return [values_of(batch) async for batch in loader]


@pytest.mark.parametrize("options", [{}, {"prefetch": 0}, {"prefetch": 3}, {"receipt": "next"}], ids=str)
def test_batches_are_those_of_the_loader(serve, options):
    client = serve(reverb.Table.queue("table", 9))
    insert_values(client, range(8))

    async def main():
        async with NumpyLoader(serve.connect(), "table", batch_size=2, num_batches=3, **options) as loader:
            batches = await taken(loader)
            assert loader.stats().batches == 3
        return batches

    assert run(main()) == [[0, 1], [2, 3], [4, 5]]
    info = info_of(client)
    assert (info.current_size, info.undelivered_samples) == (2, 0)
    assert draw_values(client, 2) == [6, 7]


def test_loader_takes_a_client_for_asyncio(serve):
    client = serve(reverb.Table.queue("table", 9))
    insert_values(client, range(8))

    async def main():
        async with connect(serve) as aio:
            async with NumpyLoader(aio, "table", batch_size=2, num_batches=3) as loader:
                batches = await taken(loader)
            # The client goes on.
            return batches, values_of(await aio.sample_batch("table", 2))

    assert run(main()) == ([[0, 1], [2, 3], [4, 5]], [6, 7])


def test_batches_have_the_structure_of_the_signature(serve):
    client = serve(make_table(signature={"x": reverb.TensorSpec((), np.int64)}))
    client.insert({"x": 7}, {"table": 1.0})

    async def main():
        loader = NumpyLoader(serve.address, "table", batch_size=2, squeeze_time=True, num_batches=1)
        async with loader:
            return [batch.data["x"].tolist() async for batch in loader]

    assert run(main()) == [[7, 7]]


def test_mixtures_take_their_shares(serve):
    client = serve(make_table("one"), make_table("two"))
    insert_values(client, [1], "one")
    insert_values(client, [2], "two")

    async def main():
        async with NumpyLoader(serve.address, {"one": 1.0, "two": 3.0}, batch_size=8, num_batches=1) as loader:
            return await taken(loader)

    (values,) = run(main())
    assert (values.count(1), values.count(2)) == (2, 6)


def test_waiting_loader_holds_no_other_task(serve):
    client = serve(reverb.Table.queue("table", 9))

    async def main():
        async with connect(serve) as aio, NumpyLoader(serve.address, "table", batch_size=2, num_batches=5) as loader:
            taking = asyncio.create_task(taken(loader))
            for value in range(10):
                await aio.insert(np.int64(value), {"table": 1.0})
            return await taking

    assert run(main()) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert info_of(client).current_size == 0


def test_tasks_that_share_an_iterator_take_turns(serve):
    insert_values(serve(reverb.Table.queue("table", 9)), range(8))

    async def main():
        async with NumpyLoader(serve.address, "table", batch_size=2, num_batches=4) as loader:
            batches = aiter_of(loader)
            return await asyncio.gather(*(anext_of(batches) for _ in range(4)))

    assert sorted(value for batch in run(main()) for value in values_of(batch)) == list(range(8))


def aiter_of(loader):
    return loader.__aiter__()


def anext_of(batches):
    return batches.__anext__()


def test_samples_of_a_cancelled_batch_go_back(serve):
    client = serve(reverb.Table.queue("table", 9))

    async def main():
        async with connect(serve) as aio, NumpyLoader(serve.address, "table", batch_size=2, prefetch=1) as loader:
            batches = aiter_of(loader)
            first = asyncio.create_task(anext_of(batches))
            await eventually(waiting(aio, "table", 1))
            await cancel(first)
            await eventually(waiting(aio, "table", 0))
            await aio.insert_batch(np.arange(2), {"table": 1.0})
            return values_of(await anext_of(batches))

    assert run(main()) == [0, 1]
    assert info_of(client).undelivered_samples == 0


@pytest.mark.parametrize("drop", [False, True], ids=["short", "none"])
def test_timeout_gives_what_is_there(serve, drop):
    insert_values(serve(reverb.Table.queue("table", 9)), range(3))

    async def main():
        options = {"timeout": 0.2, "on_timeout": "stop", "drop_remainder": drop}
        async with NumpyLoader(serve.address, "table", batch_size=2, **options) as loader:
            return await taken(loader)

    assert run(main()) == [[0, 1]] + ([] if drop else [[2]])


def test_errors_of_draws_are_raised(serve):
    serve(make_table())

    async def main():
        async with NumpyLoader(serve.address, "none", batch_size=2) as loader:
            with pytest.raises(errors.TableNotFoundError, match="none"):
                await taken(loader)

    run(main())


def test_loader_finds_a_server_that_comes_back(serve):
    client = serve(make_table())
    port = serve.server.port
    insert_values(client, [1])

    async def main():
        async with NumpyLoader(serve.address, "table", batch_size=1, prefetch=0) as loader:
            batches = aiter_of(loader)
            assert values_of(await anext_of(batches)) == [1]
            serve.server.stop(returns=True)
            taking = asyncio.create_task(anext_of(batches))
            await asyncio.sleep(0.1)
            insert_values(serve(make_table(), port=port), [2])
            return values_of(await taking)

    assert run(main()) == [2]


def test_closed_loader_ends(serve):
    insert_values(serve(make_table()), [1])

    async def main():
        async with NumpyLoader(serve.address, "table", batch_size=1) as loader:
            batches = aiter_of(loader)
            await anext_of(batches)
        with pytest.raises(StopAsyncIteration):
            await anext_of(batches)

    run(main())


def test_close_ends_the_wait_of_another_task(serve):
    serve(reverb.Table.queue("table", 9))

    async def main():
        async with connect(serve) as aio:
            async with NumpyLoader(serve.address, "table", batch_size=2, prefetch=2) as loader:
                taking = asyncio.create_task(taken(loader))
                await eventually(waiting(aio, "table", 2))
            assert await taking == []
            await aio.insert_batch(np.arange(4), {"table": 1.0})
            return (await aio.server_info())["table"]

    info = run(main())
    assert (info.current_size, info.undelivered_samples, info.waiting_samples) == (4, 0, 0)


def test_batch_that_another_task_takes_during_close_leaves_no_draw(serve, monkeypatch):
    client = serve(reverb.Table.queue("table", 9, signature=reverb.TensorSpec((), np.int64)))
    insert_values(client, range(6))
    look_up = Assembly.look_up

    async def slow(self, parts):
        await asyncio.sleep(0.1)
        await look_up(self, parts)

    monkeypatch.setattr(Assembly, "look_up", slow)

    async def main():
        async with connect(serve) as aio:
            async with NumpyLoader(serve.address, "table", batch_size=2, prefetch=1) as loader:
                taking = asyncio.create_task(anext_of(aiter_of(loader)))
                await asyncio.sleep(0.05)
            batch = await taking
            return np.ravel(batch.data).tolist(), (await aio.server_info())["table"]

    values, info = run(main())
    assert values == [0, 1]
    assert (info.current_size, info.undelivered_samples) == (4, 0)


def test_iterators_of_one_loader_take_turns(serve):
    client = serve(reverb.Table.queue("table", 9))

    async def main():
        async with NumpyLoader(serve.address, "table", batch_size=2, num_batches=4) as loader:
            tasks = [asyncio.create_task(taken(loader)) for _ in range(3)]
            await asyncio.sleep(0.05)
            insert_values(client, range(8))
            return await asyncio.gather(*tasks)

    batches = [batch for of_task in run(main()) for batch in of_task]
    assert sorted(batches) == [[0, 1], [2, 3], [4, 5], [6, 7]]
