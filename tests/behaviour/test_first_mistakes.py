"""Mistakes of a first program are answered with what to write instead."""

import dataclasses
import subprocess
import sys
import time

import numpy as np
import pytest
from aio_support import connect, run
from behaviour_support import info_of, make_table

import reverb
from reverb import adders, errors, rate_limiters
from reverb.tensor_spec import BoundedTensorSpec, TensorSpec

# Nobody listens there: only root may bind it.
NOBODY = "localhost:1"

CALLS = {
    "insert": lambda client, timeout: client.insert(0, {"table": 1.0}, timeout=timeout),
    "insert_batch": lambda client, timeout: client.insert_batch(np.zeros(2), {"table": 1.0}, timeout=timeout),
    "sample": lambda client, timeout: next(client.sample("table", 1, timeout=timeout)),
    "sample_batch": lambda client, timeout: client.sample_batch("table", 1, timeout=timeout),
    "update_priorities": lambda client, timeout: client.update_priorities("table", [1], 1.0, timeout=timeout),
    "mutate_priorities": lambda client, timeout: client.mutate_priorities("table", {1: 1.0}, timeout=timeout),
    "reset": lambda client, timeout: client.reset("table", timeout=timeout),
    "checkpoint": lambda client, timeout: client.checkpoint(timeout=timeout),
    "server_info": lambda client, timeout: client.server_info(timeout),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_nobody_who_listens_refuses_the_connection(call):
    with pytest.raises(errors.DeadlineExceededError, match="^no server at localhost:1: connection refused"):
        call(reverb.Client(NOBODY), 1.0)


def test_server_info_keeps_the_references_text():
    with pytest.raises(errors.DeadlineExceededError, match="ServerInfo call did not complete within provided timeout"):
        reverb.Client(NOBODY).server_info(0.5)


@pytest.mark.parametrize("call", [CALLS["insert"], CALLS["server_info"]], ids=["insert", "server_info"])
def test_an_unknown_host_is_named(call):
    with pytest.raises(errors.DeadlineExceededError, match="nosuchhost.invalid: unknown host"):
        call(reverb.Client("nosuchhost.invalid:8000"), 5.0)


@pytest.mark.parametrize("scheme", ["http://", "https://", "grpc://", "tcp:", "xds:///"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_unknown_scheme_is_refused_at_once(scheme, call):
    address = f"{scheme}localhost:8000"
    with pytest.raises(
        errors.InvalidArgumentError, match="is not a valid server address: expected host:port"
    ) as caught:
        call(reverb.Client(address), None)
    assert address in str(caught.value)


def test_a_writer_of_an_unknown_scheme_is_refused_at_once():
    client = reverb.Client("http://localhost:8000")
    with pytest.raises(errors.InvalidArgumentError, match="is not a valid server address"):
        client.trajectory_writer(1)


def test_a_collected_server_is_named_as_the_reason():
    client = reverb.Server([make_table()]).localhost_client()
    with pytest.raises(errors.DeadlineExceededError) as caught:
        client.insert(0, {"table": 1.0}, timeout=1.0)
    assert f"the Server of this process at {client.server_address} was stopped or collected: keep a reference" in str(
        caught.value
    )
    with pytest.raises(errors.DeadlineExceededError, match="was stopped or collected: keep a reference"):
        client.server_info(1.0)


def test_a_stopped_server_that_was_in_use_is_named_as_the_reason():
    server = reverb.Server([make_table()])
    client = server.localhost_client()
    client.insert(0, {"table": 1.0})
    server.stop()
    with pytest.raises(errors.UnavailableError, match="was stopped or collected: keep a reference"):
        client.insert(0, {"table": 1.0})


def test_another_server_at_the_address_of_a_collected_one_is_found():
    first = reverb.Server([make_table()])
    port = first.port
    first.stop()
    second = reverb.Server([make_table()], port=port)
    reverb.Client(f"localhost:{port}").insert(0, {"table": 1.0})
    second.stop()


@pytest.mark.parametrize(("make", "kind"), [(reverb.Table.queue, "queue"), (reverb.Table.stack, "stack")])
def test_a_full_queue_says_how_many_items_wait(serve, make, kind):
    client = serve(make("q", 2))
    client.insert_batch(np.arange(2), {"q": 1.0})
    full = rf"the {kind} is full \(2 of 2 items\)"
    with pytest.raises(errors.DeadlineExceededError, match=f"{full}; 1 more sample until an insert may go"):
        client.insert(0, {"q": 1.0}, timeout=0.1)
    with pytest.raises(errors.DeadlineExceededError, match=f"{full}; 2 more samples until 2 inserts may go"):
        client.insert_batch(np.arange(2), {"q": 1.0}, timeout=0.1)


def test_other_limiters_explain_their_bounds(serve):
    client = serve(make_table(limiter=rate_limiters.SampleToInsertRatio(1.0, 1, 1.0)))
    text = "8 more samples until 8 inserts may go; actors may be at most 2 items ahead"
    with pytest.raises(errors.DeadlineExceededError, match=text):
        client.insert_batch(np.arange(10), {"table": 1.0}, timeout=0.1)


def test_a_table_that_could_never_be_sampled_is_refused():
    with pytest.raises(ValueError, match=r"min_size_to_sample \(5000\) is above its max_size \(1000\)"):
        make_table(max_size=1000, limiter=rate_limiters.MinSize(5000))
    with pytest.raises(ValueError, match=r"min_size_to_sample \(11\) is above its max_size \(10\)"):
        make_table(max_size=10, limiter=rate_limiters.SampleToInsertRatio(1.0, 11, 20.0))
    make_table(max_size=1000, limiter=rate_limiters.MinSize(1000))


def test_a_table_in_place_of_a_list_is_refused():
    with pytest.raises(TypeError, match=r"tables: a list, Server\(\[table\]\)"):
        reverb.Server(make_table())


def test_a_server_in_place_of_its_address_is_refused():
    server = reverb.Server([make_table()])
    with pytest.raises(TypeError, match=r"server\.localhost_client\(\)") as caught:
        reverb.Client(server)
    assert len(str(caught.value)) < 200
    server.stop()


@pytest.mark.parametrize(
    "make",
    [
        lambda: TensorSpec(np.float32, (3,)),
        lambda: TensorSpec("float32", (3,)),
        lambda: TensorSpec(np.dtype(np.float32), ()),
        lambda: BoundedTensorSpec(np.float32, (3,), 0, 1),
    ],
)
def test_a_spec_with_its_arguments_swapped_is_refused(make):
    with pytest.raises(TypeError, match=r"^shape: expected ints, got float32; the order is \(shape, dtype\)"):
        make()


EXPECTED = r"^a: expected something with shape and dtype, such as TensorSpec\(\(3,\), float32\)"


@pytest.mark.parametrize(
    "leaf", [np.zeros(3, np.float32), (3,), [3], ((3,), np.float32), 3, "float32", None, np.float32], ids=str
)
def test_a_signature_of_something_else_than_specs_is_refused(leaf):
    with pytest.raises(ValueError, match=EXPECTED) as caught:
        make_table(signature={"a": leaf, "b": TensorSpec((), np.int64)})
    assert "\nUnsupported signature spec: " in str(caught.value)


def test_paths_in_a_signature_are_named():
    with pytest.raises(ValueError, match=r"^obs/1/x: expected something with shape and dtype"):
        make_table(signature={"obs": [TensorSpec((), np.int64), {"x": 3}]})
    with pytest.raises(ValueError, match=r"^signature: expected .*TensorSpec\(\(2, 2\), float64\)"):
        make_table(signature=np.zeros((2, 2)))


def test_definitions_of_a_checkpoint_win_with_advice(tmp_path, caplog):
    checkpointer = reverb.checkpointers.DefaultCheckpointer
    server = reverb.Server([make_table(max_size=10)], checkpointer=checkpointer(str(tmp_path)))
    server.localhost_client().checkpoint()
    server.stop()
    again = reverb.Server([make_table(max_size=20)], checkpointer=checkpointer(str(tmp_path)))
    end = time.monotonic() + 20
    while "override_definitions=True keeps yours" not in caplog.text and time.monotonic() < end:
        time.sleep(0.01)
    assert "override_definitions=True keeps yours" in caplog.text
    assert again.localhost_client().server_info()["table"].max_size == 10
    again.stop()


@dataclasses.dataclass
class Step:
    observation: np.ndarray


class Model:
    """As an object of Pydantic."""

    def model_dump(self):
        return {"observation": np.zeros(3)}


@dataclasses.dataclass
class TensorClass:
    """As an object of a tensorclass, which NumPy would take apart."""

    _is_tensorclass = True
    observation: np.ndarray

    def __len__(self):
        return len(self.observation)

    def __getitem__(self, index):
        return TensorClass(self.observation[index])


@pytest.mark.parametrize(
    ("step", "nest"),
    [
        (Step(np.zeros(3)), r"dataclasses.asdict\(step\)"),
        (Model(), r"step.model_dump\(\)"),
        (TensorClass(np.zeros(3)), r"step.to_tensordict\(\)"),
        (TensorClass(np.zeros(())), r"step.to_tensordict\(\)"),
    ],
    ids=["dataclass", "pydantic", "tensorclass", "tensorclass without axes"],
)
def test_an_object_with_fields_is_told_how_to_become_a_nest(serve, step, nest):
    client = serve(make_table())
    expected = (
        f"expected an array or a nest of arrays, got <class .*{type(step).__name__}'>: pass a nest, such as {nest}$"
    )
    for call in (
        lambda: client.insert(step, {"table": 1.0}),
        lambda: client.insert({"a": [step]}, {"table": 1.0}),
        lambda: client.trajectory_writer(1).append(step),
    ):
        with pytest.raises(TypeError, match=expected):
            call()
    with pytest.raises(TypeError, match="a table can hold objects of type str or bytes, got <class 'object'>"):
        client.insert(object(), {"table": 1.0})


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_a_tensorclass_is_told_how_to_become_a_nest(serve):
    torch, tensordict = pytest.importorskip("torch"), pytest.importorskip("tensordict")
    client = serve(make_table())
    name = "Experience"
    fields = {"__annotations__": {"observation": torch.Tensor, "reward": torch.Tensor}}
    steps = tensordict.tensorclass(type(name, (), fields))(
        observation=torch.zeros(4, 3), reward=torch.arange(4.0), batch_size=[4]
    )
    expected = rf"expected an array or a nest of arrays, got <class .*{name}'>: pass a nest, such as "
    for call in (
        lambda: client.insert(steps[0], {"table": 1.0}),
        lambda: client.insert({"a": [steps[0]]}, {"table": 1.0}),
        lambda: client.insert(tensordict.TensorDict({"a": steps[0]}), {"table": 1.0}),
        lambda: client.insert_batch(steps, {"table": 1.0}),
        lambda: client.insert_batch(steps.reshape(2, 2), {"table": 1.0}, batch_dims=2),
        lambda: client.trajectory_writer(1).append(steps[0]),
    ):
        with pytest.raises(TypeError, match=expected + r"step.to_tensordict\(\)$"):
            call()
    assert info_of(client).current_size == 0
    client.insert(steps[0].to_tensordict(), {"table": 1.0})
    client.insert_batch(steps.to_tensordict(), {"table": 1.0})
    assert info_of(client).current_size == 5


@pytest.mark.parametrize(
    "priorities",
    [{"a": np.zeros(3)}, np.zeros(3), {"a": {"b": 1.0}}],
    ids=["array", "no dict", "nest"],
)
@pytest.mark.parametrize("method", ["insert", "insert_batch"])
def test_an_insert_whose_first_argument_is_a_table_says_the_order(serve, method, priorities):
    client = serve(make_table())
    expected = (
        rf"^{method} takes the data first: expected {method}\(data, \{{'table': 1.0\}}\), got a str and an object of"
    )
    with pytest.raises(ValueError, match=expected):
        getattr(client, method)("table", priorities)


@pytest.mark.parametrize(
    ("method", "data"),
    [("insert", "table"), ("insert", {"table": 1.0}), ("insert_batch", {"table": np.zeros(2)})],
    ids=["name", "swapped", "batch"],
)
def test_an_insert_whose_data_is_taken_for_priorities_says_the_order(serve, method, data):
    client, priorities = serve(make_table()), {"reward": 1.0, "x": 2.0}
    expected = rf"^Priority table \w+ was not found; this server has: table\n{method} takes the data first: expected "
    with pytest.raises(errors.TableNotFoundError, match=expected):
        getattr(client, method)(data, priorities)

    async def main():
        async with connect(serve) as client:
            with pytest.raises(errors.TableNotFoundError, match=expected):
                await getattr(client, method)(data, priorities)

    run(main())


def test_a_table_that_is_misspelt_says_no_order(serve):
    client = serve(make_table())
    for data in ("a text", {"reward": 1.0}, {"table": 1.0, "reward": 2.0}):
        with pytest.raises(errors.TableNotFoundError, match=r"^Priority table tabel was not found; .*: table$"):
            client.insert(data, {"tabel": 1.0})


def test_a_string_is_data(serve):
    client = serve(make_table())
    client.insert("table", {"table": 1.0})
    with pytest.raises(errors.TableNotFoundError, match="nothing"):
        client.insert("table", {"nothing": 1.0})
    with pytest.raises(TypeError, match="priorities of table `table`: expected numbers"):
        client.insert({"a": "table"}, {"table": {}})
    assert client.server_info()["table"].current_size == 1
    client = serve(reverb.Table.queue("table", 1))
    client.insert("table", {"table": np.array(1.0)})
    with pytest.raises(errors.DeadlineExceededError, match="is full"):
        client.insert("table", {"table": np.array(1.0)}, timeout=0.1)


@pytest.mark.ports
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_http_port_is_named(call):
    server = reverb.Server([make_table()], host="127.0.0.1")
    expected = "is the HTTP port of a server, .*; clients use `server.port`, not `server.http_port`"
    with pytest.raises(errors.DeadlineExceededError, match=expected):
        call(reverb.Client(f"127.0.0.1:{server.http_port}"), 1.0)
    reverb.Client(f"127.0.0.1:{server.port}").insert(0, {"table": 1.0})
    server.stop()


def test_adders_take_the_address_of_a_server():
    server = reverb.Server([make_table()])
    address = f"localhost:{server.port}"
    with adders.SequenceAdder(address, "table", length=1, period=1) as adder:
        adder.add({"a": 0}, last=True)
    with adders.EpisodeAdder(address, "table", max_length=2) as adder:
        adder.add({"a": 0}, last=True)
    with adders.NStepTransitionAdder(address, "table", n=1, discount=0.9, num_envs=2) as adder:
        adder.add(np.zeros(2), np.zeros(2), np.zeros(2), np.zeros(2), terminated=np.ones(2, bool), truncated=False)
    with adders.HindsightAdder(address, "table", discount=0.9, compute_reward=lambda *_: 0.0) as adder:
        adder.end_episode()
    assert server.localhost_client().server_info()["table"].current_size == 4
    server.stop()


ADDERS = {
    "sequence": lambda client, **options: adders.SequenceAdder(client, "table", length=1, period=1, **options),
    "episode": lambda client, **options: adders.EpisodeAdder(client, "table", max_length=3, **options),
}


@pytest.mark.parametrize("how", ["close", "with"])
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("name", ADDERS)
def test_a_closed_adder_says_so(serve, name, begun, how):
    adder = ADDERS[name](serve(make_table()))
    if begun:
        adder.add({"a": 0}, last=False)
    if how == "close":
        adder.close()
    else:
        with adder:
            pass
    calls = [lambda: adder.add({"a": 0}, last=False), adder.end_episode]
    if how == "close":
        calls.append(adder.flush)
    else:
        # Items that the end of the block did not wait for are still queued.
        adder.flush()
    for call in calls:
        with pytest.raises(errors.CancelledError, match="^this adder was closed"):
            call()
    adder.close()
    with pytest.raises(errors.CancelledError, match="^this adder was closed"):
        adder.flush()


@pytest.mark.parametrize("client", [5, None, b"localhost:8000"], ids=str)
@pytest.mark.parametrize("name", ADDERS)
def test_an_adder_without_a_client_is_refused(name, client):
    with pytest.raises(TypeError, match=r"`client` must be a Client or the address of a server, got "):
        ADDERS[name](client)
    with pytest.raises(TypeError, match=r"`client` must be a Client or the address of a server, got "):
        reverb.loaders.NumpyLoader(client, "table", batch_size=1)


@pytest.mark.parametrize("name", ADDERS)
def test_an_adder_of_a_server_is_told_how_to_make_a_client(name):
    server = reverb.Server([make_table()])
    with pytest.raises(TypeError, match=r"^client: .*; server.localhost_client\(\) makes the client") as caught:
        ADDERS[name](server)
    assert len(str(caught.value)) < 200
    server.stop()


@pytest.mark.parametrize("name", ADDERS)
def test_an_adder_of_a_client_for_asyncio_is_told_what_it_takes(name):
    with pytest.raises(TypeError, match=r"^client: expected a reverb.Client .* got a reverb.aio.Client: pass its serv"):
        ADDERS[name](reverb.aio.Client(NOBODY))


class Environment:
    def reset(self):
        """Has no `step`."""


@pytest.mark.parametrize(
    "env",
    [object(), "CartPole-v1", Environment(), None, Environment],
    ids=["object", "name", "no step", "None", "class"],
)
@pytest.mark.parametrize("method", ["add_from", "signature"])
@pytest.mark.parametrize("name", ADDERS)
def test_what_is_no_environment_is_refused(name, method, env):
    adder = ADDERS[name](NOBODY)
    with pytest.raises(TypeError, match="^env: expected an environment with Gymnasium's `reset` and `step`, a vector"):
        getattr(adder, method)(env)


def test_a_column_that_is_left_out_is_named(serve):
    client = serve(make_table())
    adder = adders.SequenceAdder(client, "table", length=2, period=1)
    adder.add({"walker_0": 0, "walker_1": {"x": 1}}, last=False)
    for step, text in (
        ({"walker_0": 0}, "got 1 but wanted 2.\nmissing: walker_1/x$"),
        ({"walker_0": 0, "walker_1": {"x": 1, "y": 2}}, "got 3 but wanted 2.\nunknown: walker_1/y$"),
    ):
        with pytest.raises(ValueError, match=text):
            adder.add(step, last=False)
    adder.add({"walker_0": 0, "walker_1": {"x": 1}}, last=False)
    adder.flush()
    assert client.server_info()["table"].current_size == 1


@pytest.mark.parametrize("num_envs", [None, 2])
def test_rewards_by_agent_are_named(serve, num_envs):
    adder = adders.NStepTransitionAdder(serve(make_table()), "table", n=1, discount=0.9, num_envs=num_envs)
    expected = "a number" if num_envs is None else r"a number or \[2\]"
    with pytest.raises(TypeError, match=rf"^reward: expected {expected}, got a dict with the keys walker_0, walker_1$"):
        adder.add(0, 0, {"walker_0": 1.0, "walker_1": 1.0}, 0, terminated=False, truncated=False)
    expected = "a number" if num_envs is None else r"a number or \[2\]"
    with pytest.raises(TypeError, match=rf"^terminated: expected {expected}, got a dict with the keys walker_0$"):
        adder.add(0, 0, 1.0, 0, terminated={"walker_0": False}, truncated=False)


def test_a_program_that_loses_its_server_says_so():
    program = (
        "import reverb\n"
        "table = reverb.Table.queue('q', 2)\n"
        "client = reverb.Server([table]).localhost_client()\n"
        "client.insert(0, {'q': 1.0}, timeout=1.0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert "was stopped or collected: keep a reference" in done.stderr
