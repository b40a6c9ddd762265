import ast
import importlib
import importlib.util
import pathlib
import subprocess
import sys

import pytest

import reverb

PACKAGE = pathlib.Path(reverb.__file__).parent
FRAMEWORKS = {"tensorflow", "torch", "jax", "ray"}
# What an import of the package must not cost, wherever a name of it is used.
HEAVY = FRAMEWORKS | {"google.protobuf", "ml_dtypes", "tree"}

# Packages whose names load what they need when they are first asked for.
LAZY = ("reverb", "reverb.buffers", "reverb.exchange", "reverb.loaders", "reverb.ray")


def run(code):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True
    ).stdout


def imports_at_top_of(path):
    """The modules that a file imports at its top, `from package import name` counting as `package.name`."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_module_imports_a_framework_at_its_top():
    of_frameworks = (
        "buffers/episodic_replay_buffer.py",
        "buffers/replay_buffer.py",
        "buffers/tf_",
        "frameworks/jax",
        "frameworks/tensorflow",
        "frameworks/torch",
        "loaders/jax_",
        "loaders/tensorflow_",
        "loaders/torch_",
        "pattern_dataset.py",
        "ray/",
        "tf/",
        "tf_client.py",
        "timestep_dataset.py",
        "trajectory_dataset.py",
    )
    for path in PACKAGE.rglob("*.py"):
        if not path.relative_to(PACKAGE).as_posix().startswith(of_frameworks):
            roots = {name.partition(".")[0] for name in imports_at_top_of(path)}
            assert not roots & FRAMEWORKS, path


USES = [
    "",
    "reverb.Client; reverb.Server; reverb.Table; reverb.selectors; reverb.TensorSpec",
    "reverb.loaders.NumpyLoader; reverb.buffers.UniformBuffer; reverb.buffers.PrioritizedBuffer",
]


@pytest.mark.parametrize("use", USES)
def test_import_loads_nothing_heavy(use):
    code = f"import sys, reverb; {use}\nprint([name for name in {sorted(HEAVY)} if name in sys.modules])"
    assert run(code).strip() == "[]"


def test_all_names_resolve_after_a_plain_import():
    code = "import reverb\nfor name in reverb.__all__: getattr(reverb, name)\nprint(reverb.cc.schema_pb2.TableInfo)"
    assert "TableInfo" in run(code)


def test_names_of_the_reference_are_there():
    assert reverb.selectors is reverb.item_selectors
    for name in ("server", "client", "errors", "pybind", "rate_limiters", "replay_sample", "reverb_types", "cc"):
        assert getattr(reverb, name).__name__ == f"reverb.{name}"
    assert set(reverb.__all__) <= set(dir(reverb))
    assert not hasattr(reverb, "no_such_name")


def names_for_type_checkers(path):
    """What a lazy `__init__` imports for type checkers: by its name here, `module` or `module:name`."""
    top = path.parent.relative_to(PACKAGE.parent).as_posix().replace("/", ".")
    (block,) = (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.If))
    names = {}
    for node in block.body:
        for alias in node.names:
            module = f"{node.module}.{alias.name}".removeprefix(f"{top}.")
            is_module = importlib.util.find_spec(f"{top}.{module}".rpartition(".")[0]).submodule_search_locations
            names[alias.asname] = module if is_module else ":".join(module.rsplit(".", 1))
    return names


@pytest.mark.parametrize("package", LAZY)
def test_lazy_names_are_sorted_and_those_that_type_checkers_see(package):
    loaded = importlib.import_module(package)
    places = {
        name: place if ":" in place or package == "reverb" else f"{place}:{name}"
        for name, place in loaded._NAMES.items()
    }
    assert places == names_for_type_checkers(pathlib.Path(loaded.__file__))
    assert list(loaded._NAMES) == sorted(loaded._NAMES)
    assert loaded.__all__ == sorted(loaded.__all__)


def test_every_public_module_is_a_name():
    modules = {path.stem for path in PACKAGE.glob("*.py") if not path.stem.startswith("_")}
    assert modules <= set(reverb._NAMES)


def test_folder_of_the_package_is_easy_to_survey():
    files = [path for path in PACKAGE.iterdir() if path.is_file() and path.suffix != ".so"]
    assert len(files) <= 32


def test_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").exists()
    assert (PACKAGE / "_rust.pyi").exists()
