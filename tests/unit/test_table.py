import numpy as np
import pytest

import reverb
from reverb import rate_limiters, selectors, server
from reverb._settings import ServerOptions

INCOMPATIBLE = r"^__init__\(\): incompatible constructor arguments\."


def table(name="table", **arguments):
    options = {
        "sampler": selectors.Uniform(),
        "remover": selectors.Fifo(),
        "max_size": 10,
        "rate_limiter": rate_limiters.MinSize(1),
    }
    return reverb.Table(name, **(options | arguments))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"name": ""}, ValueError, "^name must be nonempty$"),
        ({"name": None}, ValueError, "^name must be nonempty$"),
        ({"name": 3}, TypeError, INCOMPATIBLE),
        ({"max_size": 0}, ValueError, r"^max_size \(0\) must be a positive integer$"),
        ({"max_size": -1.5}, ValueError, r"^max_size \(-1\) must be a positive integer$"),
        ({"max_size": 1.5}, TypeError, INCOMPATIBLE),
        ({"max_size": 2**31}, TypeError, INCOMPATIBLE),
        ({"max_times_sampled": 1.0}, TypeError, INCOMPATIBLE),
        ({"max_times_sampled": 2**31}, TypeError, INCOMPATIBLE),
        ({"sampler": None}, TypeError, INCOMPATIBLE),
        ({"remover": "fifo"}, TypeError, INCOMPATIBLE),
        ({"sampler": selectors.MinHeap}, TypeError, INCOMPATIBLE),
        ({"rate_limiter": None}, AttributeError, "internal_limiter"),
        ({"extensions": [object()]}, AttributeError, "build_internal_extensions"),
        ({"signature": {"a": None}}, ValueError, "\nUnsupported signature spec: None$"),
        ({"signature": {1: reverb.TensorSpec([])}}, TypeError, "str"),
        ({"max_bytes": 0}, ValueError, "`max_bytes` must be at least 1"),
        ({"seed": 1.5}, TypeError, "seed"),
        ({"stall_after": 0}, ValueError, "`stall_after` must be above 0 seconds, got 0"),
        ({"stall_after": float("nan")}, ValueError, "`stall_after` must be above 0 seconds, got nan"),
        ({"stall_after": "soon"}, TypeError, "stall_after"),
    ],
)
def test_table_refuses(arguments, error, text):
    with pytest.raises(error, match=text):
        table(**arguments)


def test_arguments_are_checked_in_the_order_of_the_reference():
    with pytest.raises(ValueError, match="name"):
        table("", max_size=0)
    with pytest.raises(ValueError, match="max_size"):
        table(max_size=0, signature=1, rate_limiter=None)
    with pytest.raises(ValueError, match="signature"):
        table(signature=1, rate_limiter=None)


def test_table_accepts_numpy_numbers_and_names_in_bytes():
    info = table(b"bytes", max_size=np.int64(7), max_times_sampled=np.int32(-1), max_bytes=np.int64(5)).info
    assert (info.name, info.max_size, info.max_times_sampled) == ("bytes", 7, -1)


def test_info_describes_the_table():
    signature = {"a": reverb.TensorSpec([2], np.float32, "own")}
    made = table(sampler=selectors.Prioritized(0.8), remover=selectors.MinHeap(), signature=signature)
    info = made.info
    assert made.name == info.name == "table"
    assert signature == info.signature
    assert info.sampler_options.WhichOneof("distribution") == "prioritized"
    assert info.sampler_options.prioritized.priority_exponent == 0.8
    assert not info.sampler_options.is_deterministic
    assert info.remover_options.heap.min_heap
    assert info.remover_options.is_deterministic
    assert info.rate_limiter_info.samples_per_insert == 1.0
    assert info.rate_limiter_info.HasField("insert_stats")
    assert info.rate_limiter_info.HasField("sample_stats")
    assert (info.current_size, info.num_episodes, info.num_deleted_episodes, info.num_unique_samples) == (0, 0, 0, 0)


@pytest.mark.parametrize(("make", "kind"), [(reverb.Table.queue, "fifo"), (reverb.Table.stack, "lifo")])
def test_queue_and_stack_sample_each_item_once(make, kind):
    info = make("table", 5, signature=reverb.TensorSpec([])).info
    assert info.sampler_options.WhichOneof("distribution") == kind
    assert info.remover_options.WhichOneof("distribution") == kind
    assert (info.max_size, info.max_times_sampled) == (5, 1)
    limiter = info.rate_limiter_info
    assert (limiter.samples_per_insert, limiter.min_size_to_sample) == (1.0, 1)
    assert (limiter.min_diff, limiter.max_diff) == (0.0, 5.0)
    assert reverb.TensorSpec([]) == info.signature
    with pytest.raises(ValueError, match="max_size"):
        make("table", 0)


def test_replace_keeps_options_that_are_not_given():
    class Special(reverb.Table):
        pass

    original = Special(
        "table",
        selectors.Prioritized(0.5),
        selectors.Lifo(),
        10,
        rate_limiters.SampleToInsertRatio(2, 3, 4),
        max_times_sampled=-1,
        signature=[reverb.TensorSpec([])],
    )
    copied = original.replace()
    assert type(copied) is reverb.Table
    before, after = original.info, copied.info
    before.table_worker_time.Clear()
    after.table_worker_time.Clear()
    assert after == before
    changed = original.replace(
        name="other", max_size=5, rate_limiter=rate_limiters.MinSize(2), max_times_sampled=0, sampler=selectors.Fifo()
    ).info
    assert (changed.name, changed.max_size, changed.max_times_sampled) == ("other", 5, 0)
    assert changed.rate_limiter_info.min_size_to_sample == 2
    assert changed.sampler_options.fifo
    assert changed.remover_options.lifo
    assert [reverb.TensorSpec([])] == changed.signature
    with pytest.raises(ValueError, match="name"):
        original.replace(name="")


def test_repr_equals_that_of_the_reference():
    assert repr(table(max_times_sampled=2)) == (
        "Table(sampler=UniformSelector, remover=FifoSelector, max_size=10, max_times_sampled=2, name=table, "
        "rate_limiter=RateLimiter(samples_per_insert=1, min_diff_=-1.79769e+308, max_diff=1.79769e+308, "
        "min_size_to_sample=1), signature=nullptr)"
    )
    assert str(table(signature=reverb.TensorSpec([2]))).endswith(
        "signature=tensor_spec_value {\n  shape {\n    dim {\n      size: 2\n    }\n  }\n  dtype: DT_FLOAT\n}\n)"
    )
    assert str(table(max_times_sampled=2)) == repr(table(max_times_sampled=2))


def test_repr_of_a_table_has_its_signature_in_one_line():
    signature = {"obs": {"image": reverb.TensorSpec([None, 84], np.uint8)}, "pair": (reverb.TensorSpec([]),) * 2}
    assert repr(table(signature=signature)).endswith(
        "min_size_to_sample=1), signature={'obs': {'image': uint8[?, 84]}, 'pair': (float32, float32)})"
    )
    many = repr(table(signature=[reverb.TensorSpec([])] * 1000))
    assert "\n" not in many
    assert len(many) < 500


@pytest.mark.parametrize("ask", [reverb.Table.can_sample, reverb.Table.can_insert])
def test_can_sample_and_can_insert_need_a_count_of_at_least_one(ask):
    with pytest.raises(TypeError):
        ask(table(), 1.5)
    with pytest.raises(ValueError, match="at least 1"):
        ask(table(), 0)
    assert ask(table(), np.int64(1)) in (True, False)


def test_empty_extensions_are_accepted():
    class Silent(server.TableExtensionBase):
        def build_internal_extensions(self, table_name):
            assert table_name == "table"
            return []

    table(extensions=[Silent()]).replace()

    class Loud(server.TableExtensionBase):
        def build_internal_extensions(self, table_name):
            return [object()]

    with pytest.raises(TypeError, match="extensions"):
        table(extensions=[Loud()])


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"tables": None}, ValueError, "^At least one table must be provided$"),
        ({"tables": iter(())}, ValueError, "^At least one table must be provided$"),
        ({"tables": ["table"]}, TypeError, INCOMPATIBLE),
        ({"port": "x"}, TypeError, INCOMPATIBLE),
        ({"port": -1}, ValueError, "^Failed to BuildAndStart gRPC server"),
        ({"port": 99999}, ValueError, "^Failed to BuildAndStart gRPC server"),
        ({"host": "0.0.0.0"}, ValueError, "allow_insecure=True"),
        ({"host": "::"}, ValueError, "allow_insecure=True"),
        ({"host": "10.0.0.1"}, ValueError, "allow_insecure=True"),
        ({"host": ""}, ValueError, "allow_insecure=True"),
        ({"host": "example.org"}, ValueError, "allow_insecure=True"),
        ({"host": 3}, TypeError, INCOMPATIBLE),
        ({"max_message_size": 0}, ValueError, "max_message_size"),
    ],
)
def test_server_refuses(arguments, error, text):
    with pytest.raises(error, match=text):
        reverb.Server(**({"tables": [table()]} | arguments))


def test_server_names_all_repeated_tables_once_in_order():
    tables = [table("a"), table("b"), table("c"), table("b"), table("a"), table("a")]
    with pytest.raises(ValueError, match="^Multiple items in tables have the same name: a, b$"):
        reverb.Server(tables)


def test_environment_variable_opens_the_server_to_other_hosts(monkeypatch):
    monkeypatch.setenv("REVERB_HOST", "0.0.0.0")
    with pytest.raises(ValueError, match=r"0\.0\.0\.0.*REVERB_ALLOW_INSECURE=1"):
        reverb.Server([table()])
    monkeypatch.setenv("REVERB_ALLOW_INSECURE", "1")
    reverb.Server([table()]).stop()
    with pytest.raises(ValueError, match="allow_insecure"):  # The argument takes precedence.
        reverb.Server([table()], allow_insecure=False)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]"])
def test_loopback_is_always_allowed(host):
    assert ServerOptions.of({"host": host}).listen.host == host


def test_one_table_serves_one_server():
    shared = table()
    first = reverb.Server([shared])
    with pytest.raises(ValueError, match="`table` already belongs to a server"):
        reverb.Server([shared])
    first.stop()
    with pytest.raises(ValueError, match="`table` already belongs to a server"):
        reverb.Server([shared])


def test_client_address_must_be_text():
    with pytest.raises(TypeError, match=INCOMPATIBLE):
        reverb.Client(3)
    assert repr(reverb.Client("")) == "Client, server_address="
