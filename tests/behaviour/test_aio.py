"""`reverb.aio.Client`: the calls of the ordinary client as coroutines."""

import asyncio
import contextlib
import pathlib
import pickle
import signal
import threading

import numpy as np
import pytest
from aio_support import cancel, connect, eventually, run, waiting
from behaviour_support import PATIENCE_S, comes_true, contents, draw_values, info_of, insert_values, make_table, program

import reverb
from reverb import aio, errors, rate_limiters
from reverb.aio import waits

SIGNATURE = {"obs": reverb.TensorSpec((2,), np.float32), "reward": reverb.TensorSpec((), np.float64)}
STEP = {"obs": np.ones(2, np.float32), "reward": 2.0}


def test_batch_has_what_was_inserted(serve):
    serve(make_table(signature=SIGNATURE))

    async def main():
        async with connect(serve) as client:
            await client.insert(STEP, {"table": 1.0})
            rows = {"obs": np.full((3, 2), 5, np.float32), "reward": np.arange(3.0)}
            await client.insert_batch(rows, {"table": [3.0, 4.0, 5.0]})
            batch = await client.sample_batch("table", 4)
            assert batch.data["reward"].shape == (4, 1)
            assert client.road == serve.road
            return await client.sample_batch("table", 4, squeeze_time=True)

    batch = run(main())
    np.testing.assert_array_equal(batch.data["obs"], [[1, 1], [1, 1], [1, 1], [1, 1]])


def test_batch_dims_count_items(serve):
    client = serve(make_table())

    async def main():
        async with connect(serve) as aio:
            with pytest.raises(ValueError, match="axes"):
                await aio.insert_batch(np.arange(6), {"table": 1.0}, batch_dims=2)
            return await aio.insert_batch(np.arange(6).reshape(2, 3), {"table": 1.0}, batch_dims=2)

    assert len(run(main())) == 6
    assert info_of(client).current_size == 6


def test_priorities_are_updated_and_items_deleted(serve):
    client = serve(make_table(sampler="uniform"))
    insert_values(client, range(3))
    keys = contents(client)

    async def main():
        async with connect(serve) as aio:
            assert await aio.update_priorities("table", [keys[0], keys[1], 12345], 7.0) == 2
            assert await aio.mutate_priorities("table", {keys[2]: 3.0}, [keys[0]]) == 2
            return await aio.server_info()

    assert run(main())["table"].current_size == 2
    assert {item.info.priority for item in client.sample("table", 100, emit_timesteps=False)} == {7.0, 3.0}


def test_items_are_deleted_by_their_keys(serve):
    client = serve(make_table())
    keys = client.insert_batch(np.arange(3), {"table": 1.0})

    async def main():
        async with connect(serve) as aio:
            with pytest.raises(TypeError, match="Keys of items"):
                await aio.delete("table", [1.5])
            return await aio.delete("table", [*keys[:2], 12345])

    assert run(main()) == 2
    assert list(contents(client)) == [2]


def test_client_is_pickled_as_its_arguments(serve):
    serve(make_table())

    async def main():
        async with connect(serve) as client:
            await client.insert(np.int64(1), {"table": 1.0})
            copy = pickle.loads(pickle.dumps(client))
        async with copy:
            assert type(copy) is type(client)
            return await copy.sample_batch("table", 1)

    assert run(main()).data[0].ravel().tolist() == [1]
    limited = aio.Client("grpcs://localhost:1", max_pending_bytes=5, tls=reverb.TLS())
    copy = pickle.loads(pickle.dumps(limited))
    assert copy.ordinary.endpoint == limited.ordinary.endpoint
    assert pickle.dumps(copy) == pickle.dumps(limited)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda client: client.sample_batch("table", 0), ValueError, "batch_size"),
        (lambda client: client.sample_batch("none", 1), errors.TableNotFoundError, "none"),
        (lambda client: client.sample_batch("empty", 1, timeout=0.0), errors.DeadlineExceededError, "empty"),
        (lambda client: client.insert(STEP, {}), ValueError, "priorities"),
        (lambda client: client.insert("table", STEP), ValueError, "insert takes the data first"),
        (lambda client: client.insert({"obs": STEP["obs"]}, {"table": 1.0}), errors.SignatureMismatchError, "reward"),
        (
            lambda client: client.insert({**STEP, "obs": np.ones(3, np.float32)}, {"table": 1.0}),
            errors.SignatureMismatchError,
            "obs",
        ),
        (lambda client: client.insert_batch(STEP, {"table": 1.0}), ValueError, "stacked steps"),
        (lambda client: client.update_priorities("table", [1, 2], [1.0, 2.0, 3.0]), ValueError, "priorities"),
        (lambda client: client.update_priorities("none", [1], 1.0), errors.TableNotFoundError, "none"),
    ],
    ids=["size", "no-table", "late", "nowhere", "swapped", "keys", "shape", "rows", "counts", "no-table-2"],
)
def test_errors_are_those_of_the_ordinary_client(serve, call, error, text):
    ordinary = serve(make_table(signature=SIGNATURE), make_table("empty"))

    async def main():
        async with connect(serve) as client:
            with pytest.raises(error, match=text) as raised:
                await call(client)
            # The client goes on.
            await client.insert(STEP, {"table": 1.0})
            return str(raised.value)

    text = run(main())
    with pytest.raises(error) as raised:
        call(ordinary)
    if error is not errors.DeadlineExceededError:
        assert text == str(raised.value)
    assert info_of(ordinary).current_size == 1


def num_native_threads():
    return len(list(pathlib.Path("/proc/self/task").iterdir()))


def test_calls_wait_without_a_thread_each(serve):
    client = serve(reverb.Table.queue("table", 1000))
    count = 200

    async def main():
        async with connect(serve) as aio:
            # Threads that the package has anyway, however many calls wait.
            await aio.server_info()
            before = num_native_threads()
            draws = [asyncio.create_task(aio.sample_batch("table", 1)) for _ in range(count)]
            await eventually(waiting(aio, "table", count))
            threads = threading.active_count()
            native = num_native_threads() - before
            await aio.insert_batch(np.arange(count), {"table": 1.0})
            batches = await asyncio.gather(*draws)
            return threads, native, sorted(int(batch.data[0][0, 0]) for batch in batches)

    before = threading.active_count()
    threads, native, values = run(main())
    assert threads <= before + 1
    assert native <= 1
    assert values == list(range(count))
    assert info_of(client).current_size == 0


def test_call_that_needs_no_wait_gives_other_tasks_a_turn(serve):
    serve(make_table())

    async def main():
        turns = 0

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with connect(serve) as client:
            await client.insert(np.int64(1), {"table": 1.0})
            task = asyncio.create_task(other())
            for number in range(20):
                await client.sample_batch("table", 1)
                assert turns > number
            await cancel(task)

    run(main())


def test_more_calls_end_at_once_than_one_step_wakes(serve):
    serve(make_table())

    async def main():
        async with connect(serve) as client:
            await asyncio.gather(*(client.insert(np.int64(number), {"table": 1.0}) for number in range(300)))
            return await client.server_info()

    assert run(main())["table"].current_size == 300


def test_client_serves_several_loops(serve):
    ordinary = serve(make_table(sampler="uniform"))
    client = connect(serve)

    async def insert(value):
        await client.insert(np.int64(value), {"table": 1.0})

    threads = [threading.Thread(target=run, args=(insert(value),)) for value in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    run(insert(5))
    assert sorted(contents(ordinary)) == list(range(6))


def test_end_of_the_client_ends_calls_of_other_tasks(serve):
    serve(reverb.Table.queue("table", 9))

    async def main():
        client = connect(serve)
        draw = asyncio.create_task(client.sample_batch("table", 1))
        await eventually(waiting(client, "table", 1))
        await client.close()
        with pytest.raises(errors.CancelledError, match="the client was closed"):
            await draw
        with pytest.raises(errors.CancelledError, match="the client was closed") as raised:
            await client.server_info()
        assert not raised.value.is_transient
        await client.close()

    run(main())


def test_end_of_the_client_tells_the_server_which_batches_the_program_has(serve):
    client = serve(reverb.Table.queue("table", 9))
    insert_values(client, range(4))

    async def main():
        async with connect(serve) as aio:
            await aio.sample_batch("table", 2)

    run(main())
    info = info_of(client)
    assert (info.current_size, info.undelivered_samples) == (2, 0)


def test_lost_server_is_found_again(serve):
    serve(make_table())
    port = serve.server.port

    async def main():
        async with connect(serve) as client:
            await client.insert(np.int64(1), {"table": 1.0})
            serve.stop()
            serve(make_table(), port=port)

            async def is_inserted():
                with contextlib.suppress(errors.UnavailableError, errors.CancelledError):
                    await client.insert(np.int64(2), {"table": 1.0})
                    return True

            await eventually(is_inserted)
            return await client.server_info()

    assert run(main())["table"].current_size == 1


def test_batch_that_went_back_as_the_server_stopped_is_drawn_again(serve_far, monkeypatch):
    ordinary = serve_far(make_table(max_times_sampled=1))
    port = serve_far.server.port
    insert_values(ordinary, [1])
    stopped = []

    async def result(call):
        answer = await waits.result(call)
        if isinstance(answer, tuple) and not stopped:
            serve_far.server.stop(returns=True)
            stopped.append(comes_true(answer[1].is_lost, PATIENCE_S))
            insert_values(serve_far(make_table(max_times_sampled=1), port=port), [2])
        return answer

    monkeypatch.setattr("reverb.aio.client.result", result)

    async def main():
        async with connect(serve_far) as client:
            return await client.sample_batch("table", 1)

    assert run(main()).data[0].ravel().tolist() == [2]
    assert stopped == [True]


ENDS = """
    import asyncio, signal, sys, numpy as np
    from reverb import aio

    async def main():
        async with aio.Client(sys.argv[1]) as client:
            writer = client.trajectory_writer(1, max_in_flight_items=1)
            calls = [client.insert(np.int64(1), {{"full": 1.0}}), client.sample_batch("empty", 1), write(writer)]
            tasks = [asyncio.create_task(call) for call in calls]
            await asyncio.sleep(0.3)
            print("waits", flush=True)
            {end}

    async def write(writer):
        async with writer:
            for step in range(10):
                await writer.append([np.int64(step)])
                await writer.create_item("full", 1.0, [writer.history[0][-1:]])

    asyncio.run(main())
    print("over", flush=True)
"""


def test_asyncio_run_ends_calls_that_wait(serve_far):
    insert_values(serve_far(reverb.Table.queue("full", 1), reverb.Table.queue("empty", 1)), [1], "full")
    with program(ENDS.format(end="pass"), serve_far.address) as running:
        assert [running.line(), running.line()] == ["waits", "over"]


def test_ctrl_c_ends_calls_that_wait(serve_far):
    insert_values(serve_far(reverb.Table.queue("full", 1), reverb.Table.queue("empty", 1)), [1], "full")
    with program(ENDS.format(end="await asyncio.gather(*tasks)"), serve_far.address) as running:
        assert running.line() == "waits"
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(PATIENCE_S) != 0
    assert draw_values(serve_far.connect(), 1, "full") == [1]


def test_limiter_decides_when_draws_go_on(serve):
    serve(make_table(limiter=rate_limiters.MinSize(3)))

    async def main():
        async with connect(serve) as client:
            draw = asyncio.create_task(client.sample_batch("table", 2))
            await client.insert_batch(np.arange(2), {"table": 1.0})
            await eventually(waiting(client, "table", 1))
            assert not draw.done()
            await client.insert(np.int64(2), {"table": 1.0})
            return await draw

    assert len(run(main()).info.key) == 2
