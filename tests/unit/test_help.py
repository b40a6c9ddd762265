"""What `help`, `inspect` and `--version` show, whichever frameworks are installed."""

import importlib
import importlib.metadata
import inspect
import pydoc
import subprocess
import sys

import pytest

import reverb

MODULES = [
    "reverb",
    "reverb.loaders",
    "reverb.exchange",
    "reverb.buffers",
    "reverb.adders",
    "reverb.structured_writer",
    "reverb.ray",
]
# Without the frameworks, even where they are installed.
WITHOUT = """
import importlib.abc, importlib.util, inspect, pydoc, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in frameworks:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

frameworks = ("tensorflow", "torch", "jax", "ray")
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in frameworks else find_spec(name, *rest)
sys.meta_path.insert(0, Refuse())
module = importlib.import_module(sys.argv[1])
inspect.getmembers(module)
print(len(pydoc.render_doc(module)))
"""


def help_of(name):
    return pydoc.render_doc(importlib.import_module(name), renderer=pydoc.plaintext)


@pytest.mark.parametrize("name", MODULES)
def test_help_and_getmembers_work_without_frameworks(name):
    done = subprocess.run([sys.executable, "-c", WITHOUT, name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_names_what_to_know_first():
    text = inspect.getdoc(reverb)
    names = ["Server", "Table", "selectors", "rate_limiters", "Client", "TrajectoryWriter", "adders", "loaders"]
    for name in [*names, "TrajectoryDataset", "errors"]:
        assert f"\n    {name} " in text
        assert name in reverb._NAMES


def test_help_of_the_exchange_lists_parquet():
    pytest.importorskip("pyarrow")
    text = help_of("reverb.exchange")
    assert "to_parquet(" in text
    assert "from_parquet(" in text


def annotations_of(module):
    for name, value in inspect.getmembers(module, callable):
        members = inspect.getmembers(value, callable) if inspect.isclass(value) else []
        for member, function in [("", value), *members]:
            try:
                signature = inspect.signature(function)
            except (TypeError, ValueError):
                continue
            annotations = [parameter.annotation for parameter in signature.parameters.values()]
            for annotation in [*annotations, signature.return_annotation]:
                yield f"{name}.{member}", inspect.formatannotation(annotation)


@pytest.mark.parametrize("name", [*MODULES, "reverb.client", "reverb.batched_writer", "reverb.data.keys"])
def test_annotations_are_short(name):
    long = [place for place, text in annotations_of(importlib.import_module(name)) if len(text) > 400]
    assert not long


@pytest.mark.parametrize("name", ["structured", "selectors", "checkpointers"])
def test_names_of_modules_can_be_imported(name):
    code = f"import reverb.{name}, reverb; print(reverb.{name}.__name__)\nfrom reverb import {name} as one\n"
    code += f"import importlib; assert importlib.import_module('reverb.{name}') is one is reverb.{name}"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == getattr(reverb, name).__name__


def test_version_is_that_of_the_distribution():
    assert reverb.__version__ == importlib.metadata.version("reverb-replay")
    assert "__version__" in dir(reverb)
    code = "import sys, reverb; print('importlib.metadata' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


def test_command_prints_its_version():
    pytest.importorskip("typer")
    code = "from reverb.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "--version"], check=True, capture_output=True, text=True)
    assert done.stdout == f"reverb {reverb.__version__}\n"
