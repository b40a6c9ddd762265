"""Pickles that were written by the wheel of commit db0293b; `tests/data/pickles/make_pickles.py` says how."""

import importlib.util
import pathlib
import pickle
import pickletools
import types

import numpy as np
import pytest
from google.protobuf.message import Message

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "pickles"
spec = importlib.util.spec_from_file_location("make_pickles", FOLDER / "make_pickles.py")
make_pickles = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_pickles)

PATHS = sorted(FOLDER.glob("*.pickle"))


def described(value):
    """Returns the content of a pickled value, in parts that can be compared."""
    if value is None or isinstance(value, (bool, int, float, str, bytes, type, types.FunctionType)):
        return value
    if isinstance(value, Message):
        # A pickle holds the entries of a map in an order that differs from run to run.
        return type(value), value.SerializeToString(deterministic=True)
    if isinstance(value, np.ndarray):
        return np.ndarray, value.dtype, value.shape, value.tolist()
    if isinstance(value, (list, tuple)):
        return type(value), [described(part) for part in value]
    if isinstance(value, dict):
        return type(value), [(key, described(part)) for key, part in value.items()]
    function, *parts = value.__reduce_ex__(make_pickles.PROTOCOL)
    return function, [described(part) for part in parts]


def modules_of(pickled):
    """Returns the modules of this package that a pickle names."""
    arguments = (argument for _, argument, _ in pickletools.genops(pickled))
    return {argument for argument in arguments if isinstance(argument, str) and argument.startswith("reverb.")}


def test_every_example_has_a_pickle():
    assert [path.stem for path in PATHS] == sorted(make_pickles.examples())


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_pickle_of_an_earlier_wheel_is_loaded(path):
    assert described(pickle.loads(path.read_bytes())) == described(make_pickles.examples()[path.stem])


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_pickle_names_the_modules_that_an_earlier_wheel_named(path):
    again = pickle.dumps(make_pickles.examples()[path.stem], make_pickles.PROTOCOL)
    assert modules_of(again) == modules_of(path.read_bytes())


def test_difference_between_pickled_objects_is_detected():
    examples = make_pickles.examples()
    seen = {name: described(value) for name, value in examples.items()}
    assert all(seen[one] != seen[other] for one in seen for other in seen if one != other)
    assert described(examples["selectors"][0]) != described(examples["selectors"][1])
