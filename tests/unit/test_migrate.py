"""The names that docs/migrate.md promises are here, with the arguments that it says."""

import importlib

import guide
import pytest
from names_driver import arguments_of

import reverb

# Names whose modules import TensorFlow.
IN_TENSORFLOW = ("PatternDataset", "TFClient", "TimestepDataset", "TrajectoryDataset", "pattern_dataset", "tf_client")
IN_TENSORFLOW += ("timestep_dataset", "trajectory_dataset", "loaders.TensorFlowLoader")
IN_OTHERS = ("frameworks.torchrl", "loaders.JaxLoader", "loaders.TorchLoader")


def resolve(path):
    """What a name without `reverb.` stands for: an attribute, or a module that is imported by its path."""
    thing, at = reverb, "reverb"
    for part in path.split("."):
        at += f".{part}"
        if not hasattr(thing, part):
            importlib.import_module(at)
        thing = getattr(thing, part)
    return thing


def split(written):
    """Splits a name from its arguments, which are None where it has none."""
    path, opened, rest = written.partition("(")
    arguments, depth = [""], 0
    for character in rest.removesuffix(")"):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            arguments.append("")
        else:
            arguments[-1] += character
    return path, [one.strip() for one in arguments if one] if opened else None


def is_in(path, modules):
    return any(path == module or path.startswith(f"{module}.") for module in modules)


def check_name(written, cells):
    """Checks that a name takes the reference's arguments first, and that the guide lists those beyond them."""
    path, theirs = split(written)
    thing = resolve(path)
    listed = [name for name in guide.CODE.findall(cells[0].partition("also ")[2]) if name.isidentifier()]
    if theirs is None:
        assert listed == []
        return
    _, ours = split(f"x{arguments_of(thing)}")
    for expected, given in zip(theirs, ours, strict=False):
        # What may be left out there may be left out here.
        assert expected in (given, given.partition("=")[0]) or expected.startswith("arg")
    assert len(ours) >= len(theirs)
    assert [name.partition("=")[0] for name in ours[len(theirs) :]] == listed


def names(in_tensorflow):
    found = guide.names_of_dm_reverb()
    assert len(found) >= 200
    chosen = {name: cells for name, cells in found.items() if is_in(split(name)[0], IN_TENSORFLOW) == in_tensorflow}
    return [pytest.param(*each, id=each[0].partition("(")[0]) for each in chosen.items()]


@pytest.mark.parametrize(("written", "cells"), names(in_tensorflow=False))
def test_name_takes_the_arguments_of_dm_reverb(written, cells):
    check_name(written, cells)


@pytest.mark.tensorflow
@pytest.mark.parametrize(("written", "cells"), names(in_tensorflow=True))
def test_name_for_tensorflow_takes_the_arguments_of_dm_reverb(written, cells):
    pytest.importorskip("tensorflow")
    check_name(written, cells)


def test_modules_are_here_unless_they_are_internal():
    for name, cell in guide.modules_of_dm_reverb().items():
        if is_in(name, IN_TENSORFLOW):
            continue
        if cell == "the same":
            assert resolve(name) is not None
        else:
            assert cell.startswith("not here")
            with pytest.raises(ImportError):
                resolve(name)


def test_what_the_guide_recommends_exists():
    cells = [cells[-1] for cells in guide.names_of_dm_reverb().values()]
    cells += [cell for _, cells in guide.names_of_torchrl() for cell in cells]
    # Calls stand with arguments; words without a dot or a capital are options.
    codes = {code.partition("(")[0] for cell in cells for code in guide.CODE.findall(cell)}
    paths = {code for code in codes if "=" not in code and ("." in code or code[:1].isupper())}
    assert len(paths) > 30
    for path in paths:
        if not is_in(path, (*IN_TENSORFLOW, *IN_OTHERS)):
            assert resolve(path) is not None
