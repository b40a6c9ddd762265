"""`get` and `wait_newer` of `reverb.aio.Client`, which read items by keys and wait for the next one, without a draw."""

import asyncio
import json
import threading

import numpy as np
import pytest
from aio_support import cancel, connect, eventually, run
from behaviour_support import PATIENCE_S, info_of, make_table, program
from test_wait_newer import SERVER, parameters, publish, version_of

import reverb
from reverb import aio, errors

SIGNATURE = {"obs": reverb.TensorSpec((2,), np.float32), "more": {"reward": reverb.TensorSpec((), np.float64)}}
UNKNOWN = 2**64 - 1


def rows(count):
    return {"obs": np.full((count, 2), 5, np.float32), "more": {"reward": np.arange(float(count))}}


def waits(client, count=1):
    """A condition: so many calls wait for newer items in the server of an ordinary client."""

    async def are_waiting():
        clients = json.loads(client.engine.observe(PATIENCE_S))["clients"]
        told = [wait for known in clients for wait in known["waits"]]
        assert {wait["kind"] for wait in told} <= {"newer"}
        return sum(wait["count"] for wait in told) == count

    return are_waiting


def test_items_are_read_by_their_keys(serve):
    client = serve(make_table(signature=SIGNATURE))
    keys = client.insert_batch(rows(3), {"table": 1.0})

    async def main():
        async with connect(serve) as aio:
            for _ in range(2):
                items, found = await aio.get("table", [int(keys[2]), UNKNOWN, int(keys[0])])
                assert found.tolist() == [True, False, True]
                assert items.info.key.tolist() == [keys[2], keys[0]]
                assert items.data["more"]["reward"].ravel().tolist() == [2, 0]
                assert items.data["obs"].shape == (2, 1, 2)
            items, found = await aio.get("table", [UNKNOWN])
            assert (items.data, found.tolist()) == (None, [False])

    run(main())
    assert info_of(client).process_samples == 0


def test_columns_are_chosen_as_by_the_ordinary_client(serve):
    client = serve(make_table(signature=SIGNATURE), make_table("bare"))
    keys = client.insert_batch(rows(2), {"table": 1.0})
    bare = client.insert_batch([np.arange(2), np.arange(2) + 7], {"bare": 1.0})

    async def main():
        async with connect(serve) as aio:
            for _ in range(2):
                items, _ = await aio.get("table", keys, [("more", "reward")])
                assert list(items.data) == ["more"]
                assert items.data["more"]["reward"].ravel().tolist() == [0, 1]
                items, _ = await aio.get("table", keys, "obs")
                assert items.data["obs"].ravel().tolist() == [5] * 4
                items, _ = await aio.get("bare", bare, [1])
                assert [column.ravel().tolist() for column in items.data] == [[7, 8]]

    run(main())


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("nowhere", [1]), errors.TableNotFoundError, "nowhere"),
        (("nowhere", [1], ["obs"]), errors.TableNotFoundError, "nowhere"),
        (("table", [1], ["reward"]), ValueError, "reward"),
        (("table", [1], []), ValueError, "at least one column"),
        (("table", [1.5]), TypeError, "Keys of items"),
    ],
)
def test_get_refuses_what_the_ordinary_client_refuses(serve, arguments, error, text):
    client = serve(make_table(signature=SIGNATURE))

    async def main():
        async with connect(serve) as aio:
            await aio.get(*arguments)

    with pytest.raises(error, match=text) as caught:
        run(main())
    with pytest.raises(error) as ordinary:
        client.get(*arguments)
    assert str(caught.value) == str(ordinary.value)


def test_another_item_ends_the_wait(serve):
    client = serve(parameters(SIGNATURE))

    def insert(reward):
        return client.insert({"obs": np.ones(2, np.float32), "more": {"reward": reward}}, {"parameters": 1.0})

    async def main():
        async with connect(serve) as aio:
            first = asyncio.create_task(aio.wait_newer("parameters"))
            await eventually(waits(client))
            keys = [insert(1.0)]
            item = await first
            assert (item.info.key, item.data["more"]["reward"].shape) == (keys[0], ())
            for reward in (2.0, 1.0):
                newer = asyncio.create_task(aio.wait_newer("parameters", after=keys[-1]))
                await eventually(waits(client))
                keys.append(insert(reward))
                item = await newer
                assert (float(item.data["more"]["reward"]), item.info.key) == (reward, keys[-1])
            return (await aio.wait_newer("parameters", np.uint64(keys[0]), timeout=0.0)).info

    assert [type(field) for field in run(main())] == [int, float, int, float, int]
    assert info_of(client, "parameters").process_samples == 0


def test_a_wait_ends_at_its_timeout(serve):
    client = serve(parameters())
    key = publish(client, 1)

    async def main():
        async with connect(serve) as aio:
            with pytest.raises(errors.DeadlineExceededError, match="no other item than the one seen"):
                await aio.wait_newer("parameters", key, timeout=0.1)
            with pytest.raises(TypeError):
                await aio.wait_newer("parameters", 1.5)
            with pytest.raises(errors.TableNotFoundError, match="nowhere"):
                await aio.wait_newer("nowhere")

    run(main())


@pytest.mark.parametrize("way", ["cancelled", "timeout", "closed"])
def test_a_wait_that_is_cancelled_is_withdrawn_from_the_server(serve, way):
    client = serve(parameters())
    key = publish(client, 1)

    async def main():
        async with connect(serve) as aio:
            if way == "timeout":
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(aio.wait_newer("parameters", key), 0.3)
            elif way == "cancelled":
                newer = asyncio.create_task(aio.wait_newer("parameters", key))
                await eventually(waits(client))
                await cancel(newer)
            else:
                call = aio.wait_newer("parameters", key)
                call.send(None)
                await eventually(waits(client))
                call.close()
            await eventually(waits(client, 0))
            newer = publish(client, 2)
            assert (await aio.wait_newer("parameters", key)).info.key == newer

    run(main())


def test_many_wait_without_a_thread_each(serve):
    client = serve(parameters())
    key = publish(client, 1)

    async def main():
        async with connect(serve) as aio:
            await aio.wait_newer("parameters")
            before = threading.active_count()
            tasks = [asyncio.create_task(aio.wait_newer("parameters", key)) for _ in range(100)]
            await eventually(waits(client, 100))
            assert threading.active_count() == before
            newer = publish(client, 2)
            assert [item.info.key for item in await asyncio.gather(*tasks)] == [newer] * 100

    run(main())


@pytest.mark.ports
def test_a_restored_server_ends_the_wait_with_its_item(tmp_path):
    with program(SERVER, tmp_path) as server:
        port, _ = server.line().split()
        address = f"ipv4:127.0.0.1:{port}"
        client = reverb.Client(address)
        publish(client, 3)
        client.checkpoint()
        key = publish(client, 9)

        async def main():
            async with aio.Client(address) as waiter:
                waiting = asyncio.create_task(waiter.wait_newer("parameters", key))
                impatient = asyncio.create_task(waiter.wait_newer("parameters", key, reconnect_timeout=0))
                await eventually(waits(client, 2))
                server.kill()
                with pytest.raises(errors.UnavailableError):
                    await impatient
                with program(SERVER, tmp_path, port) as again:
                    await asyncio.to_thread(again.line)
                    return version_of(await asyncio.wait_for(waiting, PATIENCE_S))

        assert run(main()) == 3
