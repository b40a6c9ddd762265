"""The options that writers and adders share."""

import dataclasses
import inspect
import subprocess
import sys

import pytest

import reverb
from reverb import adders
from reverb.writing import options

FIELDS = {field.name: field for field in dataclasses.fields(reverb.WriterOptions)}
TAKING_ALL = [
    reverb.Client.trajectory_writer,
    reverb.Client.structured_writer,
    reverb.Client.batched_writer,
    adders.EpisodeAdder,
    adders.HindsightAdder,
    adders.NStepTransitionAdder,
    adders.SequenceAdder,
]


def test_type_checkers_know_the_options_that_there_are():
    known = options.WriterArguments.__annotations__
    assert {name: one.__forward_arg__ for name, one in known.items()} == {
        name: one.type for name, one in FIELDS.items()
    }


@pytest.mark.parametrize("called", TAKING_ALL, ids=lambda called: called.__name__)
def test_signature_and_help_show_every_option(called):
    parameters = inspect.signature(called).parameters
    for name, field in FIELDS.items():
        assert parameters[name].default == field.default
        assert f"\n  {name}: " in inspect.getdoc(called)
    assert "options" in parameters
    assert not [one for one in parameters.values() if one.kind is inspect.Parameter.VAR_KEYWORD]


def test_help_works_where_docstrings_are_dropped():
    code = "import inspect, reverb; print(inspect.signature(reverb.Client.batched_writer))"
    done = subprocess.run([sys.executable, "-OO", "-c", code], check=True, capture_output=True, text=True)
    assert "reconnect_timeout" in done.stdout


def test_an_option_by_name_overrides_the_object():
    shared = reverb.WriterOptions(compression="zstd", max_pending_bytes=1000)
    merged = reverb.WriterOptions.of("caller", shared, {"max_pending_bytes": 2000, "reconnect_timeout": None})
    assert (merged.compression, merged.max_pending_bytes, merged.reconnect_timeout) == ("zstd", 2000, float("inf"))
    assert reverb.WriterOptions.of("caller", None, {}) == reverb.WriterOptions()


def test_unknown_options_and_other_objects_are_refused():
    client = reverb.Client("localhost:1")
    with pytest.raises(TypeError, match=r"Client.structured_writer\(\) got an unexpected keyword argument 'chunks'"):
        client.structured_writer([], chunks=3)
    with pytest.raises(TypeError, match="`options` must be a reverb.WriterOptions"):
        adders.EpisodeAdder(client, "table", max_length=1, options={"compression": "zstd"})
    with pytest.raises(TypeError, match="`compression` must be a str, got 3"):
        client.batched_writer(1, compression=3)
    with pytest.raises(ValueError, match="`max_in_flight_items` must be at least 1"):
        reverb.WriterOptions(max_in_flight_items=0)


def test_options_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        reverb.WriterOptions().compression = "zstd"
