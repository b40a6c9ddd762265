"""The options of loaders in signatures, in help, and for type checkers."""

import dataclasses
import inspect
import subprocess
import sys

import pytest

import reverb
from reverb.loaders import NumpyLoader, Options, options

FIELDS = {field.name: field for field in dataclasses.fields(Options)}


def test_type_checkers_know_the_options_that_there_are():
    known = options.LoaderArguments.__annotations__
    assert {name: one.__forward_arg__ for name, one in known.items()} == {
        name: one.type for name, one in FIELDS.items()
    }
    assert options.LoaderArguments.__required_keys__ == {
        name for name, field in FIELDS.items() if field.default is dataclasses.MISSING
    }


def test_signature_and_help_show_every_option():
    parameters = inspect.signature(NumpyLoader).parameters
    for name, field in FIELDS.items():
        default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        assert parameters[name].default == default
        assert f"\n  {name}: " in inspect.getdoc(NumpyLoader)
    assert [*parameters][:2] == ["client", "table"]
    assert not [one for one in parameters.values() if one.kind is inspect.Parameter.VAR_KEYWORD]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "needs `batch_size`"),
        ({"batch_sise": 3, "batch_size": 3}, "has no option 'batch_sise'; it has: batch_size,"),
    ],
    ids=["missing", "unknown"],
)
def test_an_option_that_is_missing_or_unknown_is_named(given, text):
    with pytest.raises(TypeError, match=f"^NumpyLoader {text}"):
        NumpyLoader("localhost:1", "table", **given)


def test_help_works_where_docstrings_are_dropped():
    code = "import inspect, reverb.loaders; print(inspect.signature(reverb.loaders.NumpyLoader))"
    done = subprocess.run([sys.executable, "-OO", "-c", code], check=True, capture_output=True, text=True)
    assert "mask_per_column" in done.stdout


def test_the_length_of_a_loader_is_its_number_of_batches():
    server = reverb.Server([reverb.Table.queue("queue", 10)])
    address = f"localhost:{server.port}"
    with NumpyLoader(address, "queue", batch_size=1, num_batches=3) as loader:
        assert len(loader) == 3
    with NumpyLoader(address, "queue", batch_size=1, num_batches=0) as loader:
        assert len(loader) == 0
        assert loader, "a loader is no container"
    with NumpyLoader(address, "queue", batch_size=1) as loader:
        with pytest.raises(TypeError, match="without `num_batches` has no length"):
            len(loader)
        assert loader
    server.stop()
