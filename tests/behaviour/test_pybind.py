"""`reverb.pybind`, whose names and call signatures are those of dm-reverb's extension module."""

import inspect
import subprocess
import sys

import numpy as np
import pytest
from behaviour_support import PATIENCE_S

import reverb
from reverb import pybind
from reverb.data import signatures

UNBOUNDED = (1.0, 1, -1e9, 1e9)
# Parameters of constructors and methods; those after `/` may be named.
SIGNATURES = {
    "AutoTunedChunkerOptions": "num_keep_alive_refs, throughput_weight",
    "Client": "server_name",
    "Client.Checkpoint": "",
    "Client.MutatePriorities": "3",
    "Client.NewSampler": "3",
    "Client.NewStructuredWriter": "1",
    "Client.NewTrajectoryWriter": "2",
    "Client.NewWriter": "chunk_length, max_timesteps, delta_encoded, max_in_flight_items",
    "Client.Reset": "1",
    "Client.ServerInfo": "1",
    "ConstantChunkerOptions": "max_chunk_length, num_keep_alive_refs",
    "FifoSelector": "",
    "HeapSelector": "min_heap",
    "LifoSelector": "",
    "PrioritizedSelector": "priority_exponent",
    "RateLimiter": "samples_per_insert, min_size_to_sample, min_diff, max_diff",
    "Sampler.GetNextTimestep": "",
    "Sampler.GetNextTrajectory": "",
    "Server": "priority_tables, port, checkpointer",
    "Server.Stop": "",
    "Server.Wait": "",
    "StructuredWriter.Append": "1",
    "StructuredWriter.AppendPartial": "1",
    "StructuredWriter.EndEpisode": "2",
    "StructuredWriter.Flush": "2",
    "Table": "name, sampler, remover, max_size, max_times_sampled, rate_limiter, extensions, signature",
    "Table.can_insert": "1",
    "Table.can_sample": "1",
    "Table.info": "",
    "Table.name": "",
    "TrajectoryWriter.Append": "1",
    "TrajectoryWriter.AppendPartial": "1",
    "TrajectoryWriter.Close": "",
    "TrajectoryWriter.ConfigureChunker": "2",
    "TrajectoryWriter.CreateItem": "4",
    "TrajectoryWriter.EndEpisode": "2",
    "TrajectoryWriter.Flush": "2",
    "UniformSelector": "",
    "Writer.Append": "1",
    "Writer.AppendSequence": "1",
    "Writer.Close": "1",
    "Writer.CreateItem": "3",
    "Writer.Flush": "",
    "create_default_checkpointer": "3",
    "selector_from_proto": "1",
}


def make_table(name="table", *, max_times_sampled=0, limiter=UNBOUNDED, signature=None):
    selectors = pybind.FifoSelector(), pybind.FifoSelector()
    return pybind.Table(name, *selectors, 10, max_times_sampled, pybind.RateLimiter(*limiter), [], signature)


@pytest.fixture
def client(road, tmp_path):
    """A client of a server with the tables `table` and `queue`."""
    tables = [make_table(), make_table("queue", max_times_sampled=1, limiter=(1.0, 1, 0.0, 10.0))]
    server = pybind.Server(tables, 0, pybind.create_default_checkpointer(str(tmp_path), "", None))
    port, path = server._server.port, server._server.unix_path
    address = {"same_process": f"localhost:{port}", "unix": f"unix:{path}", "tcp": f"ipv4:127.0.0.1:{port}"}[road]
    yield pybind.Client(address)
    server.Stop()
    assert server.Wait() is False


@pytest.mark.parametrize("name", SIGNATURES)
def test_names_and_parameters_are_those_of_the_reference(name):
    target = pybind
    for part in name.split("."):
        target = getattr(target, part)
    parameters = [p for p in inspect.signature(target).parameters.values() if p.name != "self"]
    if all(p.kind is p.POSITIONAL_ONLY for p in parameters):
        assert SIGNATURES[name] == (str(len(parameters)) if parameters else "")
    else:
        assert SIGNATURES[name] == ", ".join(p.name for p in parameters)


def test_selectors_limiters_and_tables_print_as_in_the_reference(tmp_path):
    limiter = "RateLimiter(samples_per_insert=1, min_diff_=-1e+09, max_diff=1e+09, min_size_to_sample=1)"
    assert [repr(made) for made in (pybind.UniformSelector(), pybind.PrioritizedSelector(0.5))] == [
        "UniformSelector",
        "PrioritizedSelector(priority_exponent=0.5)",
    ]
    assert [repr(pybind.HeapSelector(flag)) for flag in (True, False)] == [
        "HeapSelector(sign=1)",
        "HeapSelector(sign=-1)",
    ]
    assert repr(pybind.RateLimiter(*UNBOUNDED)) == limiter
    text = (
        "Table(sampler=FifoSelector, remover=FifoSelector, max_size=10, max_times_sampled=0, name=table, "
        f"rate_limiter={limiter}, signature=nullptr)"
    )
    table = make_table()
    assert repr(table) == text
    checkpointer = pybind.create_default_checkpointer(str(tmp_path), "group")
    assert repr(checkpointer) == f"TFRecordCheckpointer(root_dir={tmp_path}, group=group)"
    server = pybind.Server(priority_tables=[table], port=0, checkpointer=checkpointer)
    service = f"reverb_service=ReverbServiceAsync(tables=[{text}], checkpointer={checkpointer})"
    assert repr(server) == f"Server(port={server._server.port}, {service})"
    server.Stop()


def test_a_table_describes_itself_as_in_the_reference():
    table = make_table()
    assert (table.name(), table.can_insert(1), table.can_sample(1)) == ("table", True, False)
    # Made by dm-reverb 0.14 with the same arguments.
    info = reverb.cc.schema_pb2.TableInfo.FromString(table.info())
    info.table_worker_time.Clear()
    assert info.SerializeToString(deterministic=True) == (
        b"\n\x04\x08\x018\x01\x12\x04\x08\x018\x01\x18\n*!\t\x00\x00\x00\x00\x00\x00\xf0?\x11\x00\x00\x00\x00e\xcd\xcd"
        b"\xc1\x19\x00\x00\x00\x00e\xcd\xcdA \x01*\x002\x00B\x05tableb\x00"
    )


def test_a_table_takes_an_encoded_signature():
    known = reverb.Table.queue("queue", 10, signature={"a": reverb.TensorSpec([2], np.float32)})
    table = make_table(signature=signatures.encode({"a": reverb.TensorSpec([2], np.float32)}))
    assert reverb.reverb_types.TableInfo.from_serialized_proto(table.info()).signature == known.info.signature


def test_selectors_are_made_of_messages():
    for selector in (pybind.FifoSelector(), pybind.PrioritizedSelector(0.8), pybind.HeapSelector(False)):
        message = reverb.item_selectors.selector_to_proto(selector)
        assert pybind.selector_from_proto(message.SerializeToString()) == selector
    with pytest.raises(ValueError, match="Unable to deserialize KeyDistributionOptions"):
        pybind.selector_from_proto(b"\xff")


def test_rows_are_written_and_sampled(client):
    writer = client.NewWriter(chunk_length=2, max_timesteps=2, delta_encoded=False, max_in_flight_items=25)
    assert repr(writer).startswith("Writer(chunk_length=2, max_timesteps=2, delta_encoded=0, max_in_flight_items=25, ")
    assert repr(writer).endswith(", index_within_episode=0, closed=0)")
    writer.AppendSequence([np.array([1, 2], np.float32), np.zeros((2, 3))])
    writer.CreateItem("table", 2, 1.5)
    writer.Flush()
    writer.Close(True)
    with pytest.raises(RuntimeError, match="Calling method Close after Close has been called"):
        writer.Close(True)
    with pytest.raises(TypeError, match="max_in_flight_items"):
        client.NewWriter(1, 1)
    item = client.NewSampler("table", 1, 1).GetNextTrajectory()
    assert len(item) == pybind.Sampler.NUM_INFO_TENSORS + 2
    assert [array.dtype.name for array in item[:5]] == ["uint64", "float64", "int64", "float64", "int32"]
    assert (item[3], item[5].tolist(), item[6].shape) == (1.5, [1.0, 2.0], (2, 3))
    sampler = client.NewSampler("table", 1, 1)
    steps = [sampler.GetNextTimestep(), sampler.GetNextTimestep()]
    assert [(float(leaves[5]), is_last) for leaves, is_last in steps] == [(1.0, False), (2.0, True)]
    with pytest.raises(RuntimeError, match="`max_samples` already returned"):
        sampler.GetNextTimestep()
    with pytest.raises(RuntimeError, match="Priority table missing was not found"):
        client.NewSampler("missing", 1, 1).GetNextTrajectory()


def test_trajectories_are_written_and_sampled(client):
    writer = client.NewTrajectoryWriter(pybind.ConstantChunkerOptions(1, 2), True)
    first, none, second = writer.Append([np.float32(3), None, np.arange(2)])
    assert none is None
    assert isinstance(first, pybind.WeakCellRef)
    assert (first.expired, first.dtype, second.shape, second.numpy().tolist()) == (False, np.float32, [2], [0, 1])
    [nothing, third] = writer.AppendPartial([None, np.float64(1)])
    assert (nothing, third.shape, writer.episode_steps) == (None, [], 1)
    writer.Append([np.float32(4)])
    assert (writer.episode_steps, writer.max_num_keep_alive_refs) == (2, 2)
    writer.CreateItem("queue", 1.0, [[first], [second]], [True, False])
    writer.Flush(0, -1)
    writer.EndEpisode(True, None)
    writer.Close()
    assert first.expired
    with pytest.raises(RuntimeError, match=r"TrajectoryWriter::Close has been called\."):
        writer.Append([np.float32(3)])
    item = client.NewSampler("queue", 1, 1).GetNextTrajectory()
    assert (item[5].tolist(), item[6].tolist()) == (3.0, [[0, 1]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((3, 2), r"num_keep_alive_refs \(2\) must be >= max_chunk_length \(3\)\."),
        ((0, 2), r"max_chunk_length must be > 0 but got 0\."),
    ],
)
def test_chunker_options_are_checked_when_they_are_used(options, message):
    made = pybind.ConstantChunkerOptions(*options)
    with pytest.raises(ValueError, match=message):
        pybind.Client("localhost:1").NewTrajectoryWriter(made, False)


def test_patterns_write_items(client):
    structured = reverb.structured_writer
    step = structured.create_reference_step([None])
    pattern = structured.pattern_from_transform(step, lambda steps: {"pair": steps[0][-2:]})
    config = structured.create_config(pattern, "table", [])
    writer = client.NewStructuredWriter([config.SerializeToString()])
    writer.Append([np.int64(1)])
    writer.AppendPartial([np.int64(2)])
    assert writer.step_is_open
    writer.Append([None])
    assert not writer.step_is_open
    writer.Flush(0, None)
    writer.EndEpisode(True, None)
    assert client.NewSampler("table", 1, 1).GetNextTrajectory()[5].tolist() == [1, 2]
    with pytest.raises(ValueError, match="At least one config must be provided"):
        client.NewStructuredWriter([])


def test_the_other_calls_of_a_client(client, tmp_path):
    writer = client.NewTrajectoryWriter(pybind.AutoTunedChunkerOptions(1, 1.0), False)
    for value in (1, 2):
        writer.CreateItem("table", 1.0, [writer.Append([value])], [True])
    writer.Flush(0, 0)
    key = int(client.NewSampler("table", 1, 1).GetNextTrajectory()[0])
    client.MutatePriorities("table", [(key, 4.0)], [])
    assert client.NewSampler("table", 1, 1).GetNextTrajectory()[3] == 4.0
    client.MutatePriorities("table", [], [key])
    assert client.NewSampler("table", -1, 1).GetNextTrajectory()[5] == 2
    infos = [reverb.reverb_types.TableInfo.from_serialized_proto(info) for info in client.ServerInfo(5)]
    assert {info.name: info.current_size for info in infos} == {"table": 1, "queue": 0}
    assert client.Checkpoint().startswith(str(tmp_path))
    client.Reset("table")
    with pytest.raises(RuntimeError, match="missing was not found"):
        client.Reset("missing")


@pytest.mark.parametrize(
    "name",
    ["Checkpointer", "ChunkerOptions", "Sampler", "StructuredWriter", "TableExtension", "TrajectoryWriter", "Writer"],
)
def test_classes_without_a_constructor(name):
    with pytest.raises(TypeError, match="No constructor defined"):
        getattr(pybind, name)()


def test_servers_take_checkpointers_written_for_the_reference(tmp_path):
    class Checkpointer(reverb.checkpointers.CheckpointerBase):
        def internal_checkpointer(self):
            return pybind.create_default_checkpointer(str(tmp_path), "", None)

    with reverb.Server([reverb.Table.queue("queue", 1)], checkpointer=Checkpointer()) as server:
        assert server.localhost_client().checkpoint().startswith(str(tmp_path))


def test_wait_of_a_stopped_server_returns_false():
    source = """if True:
        import sys, reverb
        from reverb import pybind
        table = pybind.Table("t", pybind.FifoSelector(), pybind.FifoSelector(), 1, 0,
                             pybind.RateLimiter(1.0, 1, -1e9, 1e9), [], None)
        server = pybind.Server([table], 0)
        server.Stop()
        print(server.Wait())
    """
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
