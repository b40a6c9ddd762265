"""What a batch says of its items is declared in Rust. Python repeats the names, for type checkers, and the dtypes."""

import ast
import inspect
import pathlib
import re

import numpy as np
import pytest

import reverb
from reverb import replay_sample

DECLARED = pathlib.Path(__file__).parents[2] / "crates" / "reverb-core" / "src" / "batch_info.rs"
FACTS = re.findall(r"^ +(\w+), \w+: \w+ = (\w+);$", DECLARED.read_text(), re.MULTILINE)


def fields_of(name):
    """The fields of a class that exists for type checkers only."""
    tree = ast.parse(inspect.getsource(replay_sample))
    (found,) = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name)
    return [field.target.id for field in found.body if isinstance(field, ast.AnnAssign)]


def test_declaration_is_read():
    assert len(FACTS) >= 5


@pytest.mark.parametrize("name", ["SampleInfo", "BatchInfo", "ItemInfo"])
def test_classes_have_the_fields_that_are_declared(name):
    assert fields_of(name) == [fact for fact, _ in FACTS]


def test_dtypes_are_those_that_are_declared():
    assert list(replay_sample.INFO_DTYPES) == [dtype.lower() for _, dtype in FACTS]
    zeros = replay_sample.SampleInfo.zeros()
    assert [type(zero) for zero in zeros] == [float if "Float" in dtype else int for _, dtype in FACTS]


@pytest.mark.parametrize("scheme", ["localhost", "ipv4:127.0.0.1"])
def test_samples_have_all_facts(scheme):
    table = reverb.Table.queue("queue", 3)
    server = reverb.Server([table])
    client = reverb.Client(f"{scheme}:{server.port}")
    client.insert_batch(np.zeros(3), {"queue": [1.0, 2.0, 3.0]})
    (drawn,) = client.sample("queue", emit_timesteps=False)
    info = client.sample_batch("queue", 2).info
    server.stop()
    assert [field.dtype.name for field in info] == list(replay_sample.INFO_DTYPES)
    assert [type(field) for field in drawn.info] == [type(zero) for zero in replay_sample.SampleInfo.zeros()]
    assert drawn.info[1:] == (1.0, 3, 1.0, 1)
    assert [field.tolist() for field in info[1:]] == [[1.0, 1.0], [2, 1], [2.0, 3.0], [1, 1]]
