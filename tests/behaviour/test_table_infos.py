"""What a table's info says beyond that of dm-reverb, and how short infos, tables and servers are shown."""

import dataclasses
import time

import numpy as np
import pytest
from behaviour_support import Background, eventually, info_of, insert_values, make_table, run_program

import reverb
from reverb import _protos
from reverb.data.table_figures import TableFigures
from reverb.reverb_types import LogInfo, TableInfo

REASONS = ("max_size", "max_bytes", "max_times_sampled", "delete", "reset")

# The fields of dm-reverb, in its order.
FIELDS = (
    "name",
    "sampler_options",
    "remover_options",
    "max_size",
    "max_times_sampled",
    "rate_limiter_info",
    "signature",
    "current_size",
    "num_episodes",
    "num_deleted_episodes",
    "num_unique_samples",
    "table_worker_time",
)
STEP = {"obs": np.zeros(4, np.float32), "reward": np.float32(0)}
SIGNATURE = {"obs": reverb.TensorSpec((4,), np.float32), "reward": reverb.TensorSpec((), np.float32)}


def test_info_has_the_bytes_of_a_table(serve):
    client = serve(make_table(), make_table("limited", max_bytes=1 << 20))
    assert info_of(client).bytes == 0
    client.insert_batch(np.zeros((3, 100), np.float32), {"table": 1.0})
    assert info_of(client).bytes >= 1200
    assert info_of(client).max_bytes is None
    assert info_of(client, "limited").max_bytes == 1 << 20
    client.reset("table")
    assert info_of(client).bytes == 0


def test_info_has_what_waits_at_a_table_and_why(serve):
    queue = reverb.Table.queue("queue", 2)
    client = serve(queue, make_table("table"))
    insert_values(client, range(2), "queue")
    idle = info_of(client, "queue")
    assert (idle.waiting_inserts, idle.waiting_samples, idle.waits) == (0, 0, ())
    waiting = [Background(serve.connect().insert, np.int64(0), {"queue": 1.0}) for _ in range(3)]
    eventually(lambda: info_of(client, "queue").waiting_inserts == 3)
    info = info_of(client, "queue")
    [reason] = info.waits
    assert "queue" in reason
    assert info.waiting_samples == 0
    assert queue.info.waits == info.waits
    assert "waiting_inserts=3" in repr(info)
    waiting.append(Background(serve.connect().sample_batch, "table", 8))
    eventually(lambda: info_of(client).waiting_samples == 1)
    assert len(info_of(client).waits) == 1
    client.sample_batch("queue", 4)
    eventually(lambda: info_of(client, "queue").waits == ())


def test_info_has_what_writers_of_the_process_have_not_confirmed(serve):
    client = serve(reverb.Table.queue("queue", 1), reverb.Table.queue("other", 1), make_table())
    elsewhere = reverb.Server([reverb.Table.queue("queue", 1)])
    for address in (serve.address, f"localhost:{elsewhere.port}"):
        reverb.Client(address).insert(np.zeros(1000, np.float32), {"queue": 1.0})
    writers = [serve.connect().trajectory_writer(1) for _ in range(2)]
    for writer in writers:
        writer.append(np.zeros(1000, np.float32))
        for _ in range(3):
            writer.create_item("queue", 1.0, writer.history[-1:])
    # One of them is inserted.
    writers[0].create_item("other", 1.0, writers[0].history[-1:])
    eventually(lambda: info_of(client, "queue").unconfirmed_items == 6)
    info = info_of(client, "queue")
    assert info.unconfirmed_bytes >= 8000
    assert "unconfirmed_items=6" in repr(info)
    assert (info_of(client).unconfirmed_items, info_of(client).unconfirmed_bytes) == (0, 0)
    assert info_of(elsewhere.localhost_client(), "queue").unconfirmed_items == 0
    client.sample_batch("queue", 7)
    for writer in writers:
        writer.flush()
    assert [info_of(client, name).unconfirmed_items for name in ("queue", "other")] == [0, 0]
    for writer in writers:
        writer.close()
    elsewhere.stop()


def test_names_of_loopback_count_as_one_address():
    server = reverb.Server([reverb.Table.queue("queue", 1)])
    server.localhost_client().insert(np.zeros(1), {"queue": 1.0})
    writer = reverb.Client(f"127.0.0.1:{server.port}").trajectory_writer(1)
    writer.append(np.zeros(1))
    writer.create_item("queue", 1.0, writer.history[-1:])
    for address in (f"localhost:{server.port}", f"ipv4:127.0.0.1:{server.port}", f"[::1]:{server.port}"):
        client = reverb.Client(address)
        eventually(lambda client=client: info_of(client, "queue").unconfirmed_items == 1)
    server.localhost_client().sample_batch("queue", 2)
    writer.flush()
    writer.close()
    server.stop()


def test_table_without_a_server_has_a_whole_info():
    info = make_table(max_bytes=100).info
    assert (info.bytes, info.max_bytes, info.waiting_inserts, info.waits) == (0, 100, 0, ())


def test_info_has_the_same_figures_on_every_road(serve):
    client = serve(make_table(max_size=4, max_times_sampled=2))
    insert_values(client, range(6))
    sampled = client.sample_batch("table", 3).info
    client.mutate_priorities("table", updates={int(sampled.key[0]): 3.0})
    eventually(lambda: info_of(client).undelivered_samples == 0)
    info = info_of(client)
    assert all(getattr(info, figure.name) is not None for figure in dataclasses.fields(TableFigures))
    assert info.removals["max_size"] == 2
    assert set(info.removals) == {*REASONS}
    assert sum(info.removals.values()) == 6 - info.current_size
    assert (info.insert_bytes, info.sample_bytes, info.referenced_bytes) == (48, 24, 8 * info.current_size)
    assert info.weight == info.chunks == info.current_size
    assert (info.unsampled_removals, info.longest_insert_wait_seconds) == (2, 0.0)
    assert info.priority_updates in (0, 1)
    assert info.index_bytes > 0
    assert abs(info.last_insert_at - time.time()) < 60
    assert info.last_sample_at >= info.last_insert_at - 1


def test_info_of_a_table_of_a_checkpoint_has_no_figures_of_a_server(tmp_path):
    server = reverb.Server([make_table()], checkpointer=reverb.checkpointers.DefaultCheckpointer(str(tmp_path)))
    insert_values(server.localhost_client(), range(3))
    path = server.localhost_client().checkpoint()
    server.stop()
    info = reverb.checkpointers.open(path).table("table").info
    assert (info.current_size, info.rate_limiter_info.insert_stats.completed) == (3, 3)
    assert {getattr(info, figure.name) for figure in dataclasses.fields(TableFigures)} == {None}
    assert info.log is None


@pytest.mark.parametrize("mode", ["process", "power"])
def test_info_has_the_log_of_a_durable_server(serve, tmp_path, mode):
    # Nothing is synced during the test in mode "process".
    client = serve(
        make_table(),
        make_table("other"),
        checkpointer=reverb.checkpointers.DefaultCheckpointer(str(tmp_path)),
        durability=reverb.Durability(mode, sync_interval=1e6),
    )
    insert_values(client, range(3))
    infos = client.server_info()
    log = infos["table"].log
    assert (log.mode, log.failure) == (mode, None)
    assert infos["other"].log == log
    assert f"log={log!r}" in str(infos["table"])
    assert "log" not in repr(infos["table"])
    if mode == "process":
        eventually(lambda: info_of(client).log.sync_age > log.sync_age > 0)
    insert_values(client, range(3))
    assert info_of(client).log.size_bytes > log.size_bytes > 0


def test_info_has_no_log_without_a_durability(serve, tmp_path):
    client = serve(make_table(), checkpointer=reverb.checkpointers.DefaultCheckpointer(str(tmp_path)))
    assert info_of(client).log is None


def test_info_of_a_message_has_the_log_and_its_failure():
    message = _protos.message_class("reverb.replay.v1.TableStatus")()
    assert TableInfo.from_serialized_status(message.SerializeToString()).log is None
    told = {"mode": "power", "size_bytes": 7, "sync_age_seconds": 1.5, "disk_low": True}
    message.log.MergeFrom(_protos.message_class("reverb.replay.v1.LogStatus")(**told))
    info = TableInfo.from_serialized_status(message.SerializeToString())
    assert info.log == LogInfo("power", 7, 1.5, True, None)
    assert "log" not in repr(info)
    message.log.failure = "no space\nleft"
    info = TableInfo.from_serialized_status(message.SerializeToString())
    assert info.log == LogInfo("power", 7, 1.5, True, "no space\nleft")
    assert r"log_failure='no space\nleft'" in repr(info)


def test_info_of_a_message_without_a_figure_does_not_know_it():
    message = _protos.message_class("reverb.replay.v1.TableStatus")(weight=0.0)
    message.removed.deleted = 3
    info = TableInfo.from_serialized_status(message.SerializeToString())
    assert (info.weight, info.bytes, info.waiting_inserts, info.last_insert_at) == (0.0, None, None, None)
    assert info.removals == {"max_size": 0, "max_bytes": 0, "max_times_sampled": 0, "delete": 3, "reset": 0}


def test_fields_of_dm_reverb_come_first_and_alone_make_an_info():
    assert tuple(field.name for field in dataclasses.fields(TableInfo))[: len(FIELDS)] == FIELDS
    info = make_table().info
    given = TableInfo(*(getattr(info, name) for name in FIELDS))
    assert given == info
    assert (given.bytes, given.max_bytes, given.waits, given.unconfirmed_items) == (None, None, (), 0)
    assert repr(given) == repr(info).replace("bytes=0, ", "")


def test_comparison_of_infos_ignores_what_dm_reverb_lacks():
    info = make_table().info
    other = dataclasses.replace(info, bytes=7, max_bytes=9, waiting_inserts=1, waiting_samples=1, waits=("a",))
    other.log = LogInfo("process", 1, 0.0, False, None)
    assert other == info
    assert dataclasses.replace(info, current_size=1) != info


def test_info_is_pickled_with_all_fields():
    # In a process that has done nothing else: messages get their names when their module is imported.
    run_program("""
        import pickle, reverb
        from reverb import reverb_types
        server = reverb.Server([reverb.Table.queue("queue", 1, signature=[reverb.TensorSpec(())])])
        info = server.localhost_client().server_info()["queue"]
        info.bytes, info.waits, info.log = 7, ("a",), reverb_types.LogInfo("power", 7, 1.5, True, None)
        again = pickle.loads(pickle.dumps(info))
        assert again == info
        assert (again.bytes, again.waits, again.log) == (7, ("a",), info.log)
    """)


def test_repr_of_an_info_is_short_and_its_str_has_all_fields(serve):
    client = serve(reverb.Table.queue("queue", 5, signature=SIGNATURE))
    client.insert(STEP, {"queue": 1.0})
    info = info_of(client, "queue")
    assert repr(info) == (
        f"TableInfo(name='queue', current_size=1, max_size=5, inserts=1, samples=0, bytes={info.bytes}, "
        "signature={'obs': float32[4], 'reward': float32})"
    )
    assert all(f"{field.name}={getattr(info, field.name)!r}" in str(info) for field in dataclasses.fields(info))


def test_repr_of_a_server_names_its_tables_and_its_str_shows_them(tmp_path):
    tables = [make_table(), reverb.Table.queue("queue", 5, signature=SIGNATURE)]
    checkpointer = reverb.checkpointers.DefaultCheckpointer(tmp_path)
    server = reverb.Server(tables, checkpointer=checkpointer)
    assert repr(server) == f"Server(port={server.port}, tables=[table, queue], checkpointer={checkpointer})"
    service = f"ReverbServiceAsync(tables=[{tables[0]}, {tables[1]}], checkpointer={checkpointer})"
    assert str(server) == f"Server(port={server.port}, reverb_service={service})"
    assert "dtype: DT_FLOAT" in str(server)
    server.stop()


@pytest.mark.parametrize("signature", [None, SIGNATURE])
def test_reprs_are_one_line(signature, serve):
    table = reverb.Table.queue("queue", 5, signature=signature)
    client = serve(table)
    for shown in (table, serve.server, client.server_info(), table.info, client):
        assert "\n" not in repr(shown)
