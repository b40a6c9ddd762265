"""The writers of `reverb.aio`: items as those of the ordinary writers, and waits that hold no other task."""

import asyncio
import contextlib
import gc

import numpy as np
import pytest
from aio_support import cancel, connect, counted, eventually, run
from behaviour_support import draw_values, info_of, insert_values, make_table

import reverb
from reverb import aio, errors, structured

SIGNATURE = {"x": reverb.TensorSpec((None,), np.int64)}


def newest(writer):
    return [writer.history[0][-1:]]


def config(*conditions):
    pattern = structured.pattern_from_transform({"x": 0}, lambda step: {"x": step["x"][-2:]})
    return structured.create_config(pattern, "table", conditions)


def sequences(client, count):
    samples = client.sample("table", count, emit_timesteps=False, unpack_as_table_signature=True)
    return [sample.data["x"].tolist() for sample in samples]


def test_trajectory_writer_writes_what_the_ordinary_one_writes(serve):
    client = serve(make_table(signature=SIGNATURE, max_times_sampled=1))

    async def main():
        async with connect(serve) as aio, aio.trajectory_writer(3) as writer:
            for step in range(4):
                await writer.append({"x": np.int64(step)})
                if writer.episode_steps >= 3:
                    await writer.create_item("table", 1.0, {"x": writer.history["x"][-3:]})
            await writer.end_episode()
            assert writer.episode_steps == 0

    run(main())
    assert sequences(client, 2) == [[0, 1, 2], [1, 2, 3]]


def test_structured_writer_writes_what_the_ordinary_one_writes(serve):
    client = serve(make_table(signature=SIGNATURE, max_times_sampled=1))

    async def main():
        at_end = config(structured.Condition.is_end_episode())
        async with connect(serve) as aio, aio.structured_writer([at_end]) as writer:
            for step in range(4):
                await writer.append({"x": np.int64(step)})
                if step == 1:
                    await writer.end_episode()
            await writer.end_episode()

    run(main())
    assert sequences(client, 2) == [[0, 1], [2, 3]]


def test_batched_writer_writes_what_the_ordinary_one_writes(serve):
    client = serve(make_table(signature=SIGNATURE, max_times_sampled=1))

    async def main():
        async with connect(serve) as aio:
            async with aio.batched_writer(2, 2) as writer:
                for step in range(2):
                    await writer.append({"x": np.array([step, 10 + step])})
                made = await writer.create_items("table", 1.0, {"x": writer.history["x"][-2:]})
                assert made.tolist() == [True, True]
                assert writer.episode_steps.tolist() == [2, 2]
                trajectory, mask = {"x": writer.history["x"][-2:]}, [True, False]
                made, keys = await writer.create_items("table", 1.0, trajectory, mask=mask, return_keys=True)
                assert (made.tolist(), (keys > 0).tolist()) == (mask, mask)
            async with aio.batched_writer(2, configs=[config()]) as writer:
                for step in range(2):
                    await writer.append({"x": np.array([20 + step, 30 + step])})

    run(main())
    assert sorted(sequences(client, 5)) == [[0, 1], [0, 1], [10, 11], [20, 21], [30, 31]]


def test_batched_writer_takes_a_list_of_arrays(serve):
    client = serve(make_table(signature=SIGNATURE, max_times_sampled=1))

    async def main():
        async with connect(serve) as aio, aio.batched_writer(2) as writer:
            await writer.append({"x": [np.arange(2), np.arange(3)]})
            await writer.create_items("table", 1.0, {"x": writer.history["x"][-1]})

    run(main())
    assert sorted(sequences(client, 2), key=len) == [[0, 1], [0, 1, 2]]


@pytest.mark.parametrize("kind", ["trajectory", "structured", "batched"])
def test_misfits_are_found_before_anything_is_done(serve, kind):
    client = serve(make_table(signature={"other": reverb.TensorSpec((None,), np.int64)}))

    async def write(aio):
        if kind == "trajectory":
            writer = aio.trajectory_writer(2)
            await writer.append({"x": np.int64(1)})
            await writer.create_item("table", 1.0, {"x": writer.history["x"][-1:]})
        elif kind == "structured":
            await aio.structured_writer([config()]).append({"x": np.int64(1)})
        else:
            await aio.batched_writer(1, configs=[config()]).append({"x": np.array([1])})

    async def main():
        async with connect(serve) as aio:
            with pytest.raises(errors.SignatureMismatchError, match="other"):
                await write(aio)
            # The client goes on.
            await aio.insert({"other": np.zeros(3, np.int64)}, {"table": 1.0})

    run(main())
    assert info_of(client).current_size == 1


def many_tables(count=30):
    return [make_table("table", signature=SIGNATURE), *(make_table(f"other_{number}") for number in range(count - 1))]


async def write_with(aio, kind, value):
    """Writes one item with a writer of this kind."""
    if kind == "trajectory":
        async with aio.trajectory_writer(1) as writer:
            await writer.append({"x": np.int64(value)})
            await writer.create_item("table", 1.0, {"x": writer.history["x"][-1:]})
    elif kind == "structured":
        async with aio.structured_writer([config()]) as writer:
            for _ in range(2):
                await writer.append({"x": np.int64(value)})
    else:
        async with aio.batched_writer(1) as writer:
            await writer.append({"x": np.array([value])})
            await writer.create_items("table", 1.0, {"x": writer.history["x"][-1:]})


@pytest.mark.parametrize("kind", ["trajectory", "structured", "batched"])
def test_all_writers_of_a_client_share_one_look_up(serve, kind, monkeypatch):
    client = serve(*many_tables())

    async def main():
        async with connect(serve) as aio:
            # At the same time, and later.
            await asyncio.gather(*(write_with(aio, kind, value) for value in range(20)))
            await write_with(aio, kind, 20)

    with counted(monkeypatch) as (asked, parsed):
        run(main())
    assert len(asked) == 1
    # The extension has the signatures.
    assert parsed == []
    assert info_of(client).current_size == 21


def test_readers_of_a_client_share_one_look_up_of_one_table(serve, monkeypatch):
    client = serve(*many_tables())
    client.insert({"x": np.zeros(1, np.int64)}, {"table": 1.0})

    async def main():
        async with connect(serve) as aio:
            batches = await asyncio.gather(*(aio.sample_batch("table", 1) for _ in range(20)))
            assert {tuple(batch.data) for batch in batches} == {("x",)}
            await write_with(aio, "trajectory", 1)

    with counted(monkeypatch) as (asked, parsed):
        run(main())
    assert (len(asked), parsed) == (1, ["table"])


def test_loader_looks_up_its_table_alone(serve, monkeypatch):
    client = serve(*many_tables())
    client.insert({"x": np.zeros(1, np.int64)}, {"table": 1.0})

    async def main():
        async with reverb.loaders.NumpyLoader(serve.address, "table", batch_size=1, num_batches=2) as loader:
            return [tuple(batch.data) async for batch in loader]

    with counted(monkeypatch) as (_, parsed):
        assert run(main()) == [("x",), ("x",)]
    assert parsed == ["table"]


def test_server_info_gives_other_tasks_a_turn_between_tables(serve, monkeypatch):
    serve(*many_tables())

    async def main():
        most = turns = 0

        async def other():
            nonlocal most, turns
            while True:
                before = len(parsed)
                await asyncio.sleep(0)
                most, turns = max(most, len(parsed) - before), turns + 1

        async with connect(serve) as aio:
            task = asyncio.create_task(other())
            infos = await aio.server_info()
            await cancel(task)
        return len(infos), most

    with counted(monkeypatch) as (_, parsed):
        assert run(main()) == (30, 1)


def test_writers_learn_the_signatures_of_a_server_that_took_the_place_of_another(serve):
    serve(make_table())
    port = serve.server.port

    async def main():
        async with connect(serve) as aio:
            await write_with(aio, "trajectory", 1)
            serve.stop()
            serve(make_table(signature={"other": reverb.TensorSpec((None,), np.int64)}), port=port)

            async def is_connected():
                with contextlib.suppress(errors.UnavailableError, errors.CancelledError):
                    return await aio.server_info()

            await eventually(is_connected)
            with pytest.raises(errors.SignatureMismatchError, match="other"):
                await write_with(aio, "trajectory", 2)

    run(main())


def test_cancelled_look_up_leaves_others_theirs(serve):
    client = serve(*many_tables())

    async def main():
        before = len(asyncio.all_tasks())
        async with connect(serve) as aio:
            for lost in range(4):
                tasks = [asyncio.create_task(write_with(aio, "trajectory", value)) for value in range(3)]
                for _ in range(lost):
                    await asyncio.sleep(0)
                tasks[0].cancel()
                await asyncio.gather(*tasks[1:])
            # Nobody is left to wait for the answer.
            async with connect(serve) as other:
                writing = asyncio.create_task(write_with(other, "trajectory", 0))
                await asyncio.sleep(0)
                await cancel(writing)
            # A cancelled task ends with its next step.
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) == before

    run(main())
    assert info_of(client).current_size >= 8


def test_unknown_table_is_looked_up_and_refused(serve):
    serve(make_table())

    async def main():
        async with connect(serve) as aio, aio.trajectory_writer(1) as writer:
            await writer.append([np.int64(1)])
            with pytest.raises(errors.TableNotFoundError, match="none"):
                await writer.create_item("none", 1.0, newest(writer))
            await writer.create_item("table", 1.0, newest(writer))

    run(main())
    assert info_of(serve.connect()).current_size == 1


def test_refused_item_is_reported_as_by_the_ordinary_writer(serve):
    client = serve(make_table(sampler="prioritized"))

    async def main():
        async with connect(serve) as aio, aio.trajectory_writer(1) as writer:
            await writer.append([np.int64(1)])
            await writer.create_item("table", -1.0, newest(writer))
            with pytest.raises(errors.InvalidPriorityError):
                await writer.flush()
            await writer.create_item("table", 2.0, newest(writer))
            await writer.create_item("table", -1.0, newest(writer))
            with pytest.raises(errors.InvalidPriorityError) as raised:
                await writer.end_episode()
            assert raised.value.step_taken
            assert writer.episode_steps == 0

    run(main())
    assert info_of(client).current_size == 1


def test_full_table_holds_the_writer_and_no_other_task(serve):
    client = serve(reverb.Table.queue("table", 1))

    async def main():
        async with connect(serve) as aio:

            async def write():
                async with aio.trajectory_writer(1, max_in_flight_items=2) as writer:
                    for step in range(20):
                        await writer.append([np.int64(step)])
                        await writer.create_item("table", 1.0, newest(writer))

            writing = asyncio.create_task(write())
            values = []
            while len(values) < 20:
                batch = await aio.sample_batch("table", 1)
                values += batch.data[0].ravel().tolist()
            await writing
            return values

    assert run(main()) == list(range(20))
    assert info_of(client).current_size == 0


def test_room_has_a_time_limit(serve):
    insert_values(serve(reverb.Table.queue("table", 1)), [0])

    async def main():
        async with connect(serve) as aio:
            writer = aio.trajectory_writer(1, max_in_flight_items=1)
            await writer.append([np.int64(1)])
            await writer.create_item("table", 1.0, newest(writer))
            with pytest.raises(errors.DeadlineExceededError):
                await writer.create_item("table", 1.0, newest(writer), timeout=0.05)
            with pytest.raises(errors.DeadlineExceededError):
                await writer.flush(timeout=0.05)
            assert (await aio.sample_batch("table", 2)).data[0].ravel().tolist() == [0, 1]
            await writer.close()
            closed = "^this writer was closed; make another one for further items$"
            with pytest.raises(errors.CancelledError, match=closed):
                await writer.append([np.int64(1)])
            with pytest.raises(errors.CancelledError, match=closed):
                await writer.flush()
            await writer.close()

    run(main())


def test_writers_that_are_left_or_deleted_do_not_hold_the_loop(serve, caplog):
    client = serve(reverb.Table.queue("table", 1))
    insert_values(client, [0])

    async def write(aio, value):
        async with aio.trajectory_writer(1) as writer:
            await writer.append([np.int64(value)])
            await writer.create_item("table", 1.0, newest(writer))
            raise ValueError("the session fails")

    async def main():
        async with connect(serve) as aio:
            with pytest.raises(ValueError, match="the session fails"):
                await write(aio, 1)
            deleted = aio.trajectory_writer(1)
            await deleted.append([np.int64(2)])
            await deleted.create_item("table", 1.0, newest(deleted))
            del deleted
            gc.collect()
            # Their items are sent in the background.
            values = []
            while len(values) < 3:
                values += (await aio.sample_batch("table", 1)).data[0].ravel().tolist()
            return values

    assert sorted(run(main())) == [0, 1, 2]
    assert "given up" not in caplog.text


def test_cancelled_session_leaves_its_writer(serve):
    insert_values(serve(reverb.Table.queue("table", 1)), [0])

    async def main():
        async with connect(serve) as aio:

            async def write():
                async with aio.trajectory_writer(1, max_in_flight_items=1) as writer:
                    for step in (1, 2):
                        await writer.append([np.int64(step)])
                        await writer.create_item("table", 1.0, newest(writer))

            writing = asyncio.create_task(write())

            async def is_waiting():
                return (await aio.server_info())["table"].waiting_inserts == 1

            await eventually(is_waiting)
            await cancel(writing)
            values = (await aio.sample_batch("table", 2)).data[0].ravel().tolist()
            assert values == [0, 1]

    run(main())


def test_options_of_writers_are_checked():
    client = aio.Client("localhost:1")
    with pytest.raises(ValueError, match="num_keep_alive_refs"):
        client.trajectory_writer(0)
    with pytest.raises(ValueError, match="max_in_flight_items"):
        client.structured_writer([config()], max_in_flight_items=0)
    with pytest.raises(ValueError, match="num_envs"):
        client.batched_writer(0)


def test_ordinary_client_reads_what_was_written(serve):
    client = serve(make_table())

    async def main():
        async with connect(serve) as aio, aio.trajectory_writer(1) as writer:
            await writer.append([np.int64(5)])
            await writer.create_item("table", 1.0, newest(writer))

    run(main())
    assert draw_values(client) == [5]
