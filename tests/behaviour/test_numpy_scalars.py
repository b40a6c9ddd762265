"""NumPy scalars, which environments return as rewards and flags, are stored like 0-d arrays, and as quickly."""

import functools
import sys

import ml_dtypes
import numpy as np
import pytest
import tree
from behaviour_support import draw, info_of

from reverb import adders, structured

SCALARS = {
    **{
        name: np.dtype(name).type(1)
        for name in (
            *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
            *("float16", "float32", "float64", "complex64", "complex128"),
        )
    },
    "longlong": np.longlong(-5),
    "ulonglong": np.ulonglong(2**64 - 1),
    "intc": np.intc(-6),
    "negative": np.float64(-0.0),
    "nan": np.frombuffer(b"\x01\x00\x00\x00\x00\x00\xf8\x7f", np.float64)[0],
    "complex": np.complex128(1.5 - 2.5j),
    "half": np.float16(-1.5),
    "bfloat16": ml_dtypes.bfloat16(1.5),
    "float8_e5m2": ml_dtypes.float8_e5m2(1.5),
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn(-1.5),
    "str": np.str_("h\u00e9\x00"),
    "bytes": np.bytes_(b"ab\x00c"),
}


class Reward(np.float64):
    """A subclass, such as one that names a unit."""


def step_of(value):
    return {"flat": value, "listed": [value, value], "deep": {"x": (value, {"y": [value]})}}


def insert(client):
    return lambda step: client.insert(step, {"table": 1.0})


def append_steps(client):
    writer = client.trajectory_writer(1)

    def append(step):
        writer.append(step)
        writer.create_item("table", 1.0, tree.map_structure(lambda column: column[-1:], writer.history))
        writer.flush()

    return append


def append_rows(client):
    writer = client.writer(1)

    def append(step):
        writer.append(step)
        writer.create_item("table", 1, 1.0)
        writer.flush()

    return append


def pattern():
    """A pattern for items of one step."""
    last = structured.pattern_from_transform(step_of(0), lambda x: tree.map_structure(lambda node: node[-1:], x))
    return structured.create_config(last, "table")


def append_to_patterns(client):
    writer = client.structured_writer([pattern()])

    def append(step):
        writer.append(step)
        writer.flush()

    return append


def add_to_sequences(client):
    adder = adders.SequenceAdder(client, "table", length=1, period=1)

    def add(step):
        adder.add(step)
        adder.flush()

    return add


WAYS = {
    "insert": insert,
    "trajectory_writer": append_steps,
    "writer": append_rows,
    "structured_writer": append_to_patterns,
    "adder": add_to_sequences,
}


@pytest.fixture(params=WAYS)
def write(client, request):
    """Writes a step as an item of one row to `table`."""
    return WAYS[request.param](client)


def expected_cell(value):
    """The cell that a scalar becomes, as an array of one row."""
    if isinstance(value, str | bytes):
        text = value.encode() if isinstance(value, str) else bytes(value)
        return np.array([text], object)
    return np.asarray(value)[None]


@pytest.mark.parametrize("name", SCALARS)
def test_numpy_scalars_are_stored_bit_for_bit_at_every_depth(client, write, name):
    expected = expected_cell(SCALARS[name])
    write(step_of(SCALARS[name]))
    write(step_of(SCALARS[name]))
    for sample in draw(client, 2):
        assert len(sample.data) == 5
        for column in sample.data:
            assert (column.dtype, column.shape) == (expected.dtype, (1,))
            assert (
                column.tolist() == expected.tolist()
                if column.dtype == object
                else column.tobytes() == expected.tobytes()
            )


def python_functions_called_by(action):
    """The names of all Python functions that run during a call, without the caller's own."""
    names = []

    def note(frame, event, _):
        if event == "call":
            names.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return names


def as_python_function(function):
    """The same function in a form that a profile shows."""

    def seen(*args, **kwargs):
        return function(*args, **kwargs)

    return seen


FAST = {
    **SCALARS,
    "strided row": np.arange(12.0).reshape(3, 4)[:, 1],
    "transposed": np.arange(12.0).reshape(3, 4).T,
}


@pytest.mark.parametrize("way", ["insert", "trajectory_writer", "writer", "structured_writer"])
def test_no_python_code_runs_to_convert_a_numpy_scalar_or_a_strided_row(client, monkeypatch, way):
    make = {
        "insert": lambda: functools.partial(client.insert, priorities={"table": 1.0}),
        "trajectory_writer": lambda: client.trajectory_writer(1).append,
        "writer": lambda: client.writer(1).append,
        "structured_writer": lambda: client.structured_writer([pattern()]).append,
    }[way]
    for function in ("asarray", "ascontiguousarray", "array"):
        monkeypatch.setattr(np, function, as_python_function(getattr(np, function)))

    def functions_of_second_step(value):
        append, step = make(), step_of(value)
        append(step)
        return python_functions_called_by(lambda: append(step))

    plain = functions_of_second_step(np.zeros(()))
    assert {name: functions_of_second_step(value) for name, value in FAST.items()} == dict.fromkeys(FAST, plain)


def test_scalars_of_a_subclass_are_stored_as_their_base(client, write):
    write(step_of(Reward(1.5)))
    for column in draw(client)[0].data:
        assert (column.dtype, column.tolist()) == (np.float64, [1.5])


@pytest.mark.parametrize(
    "value",
    [
        np.void(b"ab"),
        np.zeros(1, [("a", "i4"), ("b", "f8")])[0],
        np.datetime64("2020-01-01"),
        np.timedelta64(5, "s"),
        np.longdouble(1),
        np.clongdouble(1),
        ml_dtypes.int4(3),
    ],
    ids=["void", "record", "date", "duration", "longdouble", "clongdouble", "int4"],
)
def test_scalars_that_a_table_cannot_hold_are_type_errors_and_change_nothing(client, write, value):
    with pytest.raises(TypeError, match="a table cannot hold arrays of dtype"):
        write(step_of(value))
    assert info_of(client).current_size == 0
