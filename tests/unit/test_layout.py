import ast
import pathlib
import subprocess
import sys

import pytest

import reverb

PACKAGE = pathlib.Path(reverb.__file__).parent
FRAMEWORKS = {"tensorflow", "torch", "jax"}
# What an import of the package must not cost, wherever a name of it is used.
HEAVY = FRAMEWORKS | {"google.protobuf", "ml_dtypes", "tree"}


def run(code):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True
    ).stdout


def imports_of(path, *, only_top):
    """The modules that a file imports, `from package import name` counting as `package.name`."""
    tree = ast.parse(path.read_text())
    for node in tree.body if only_top else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_only_pybind_imports_the_extension():
    importers = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "reverb._rust" in imports_of(path, only_top=False)
    }
    assert importers == {"pybind.py"}


def test_no_module_imports_a_framework_at_its_top():
    of_frameworks = (
        "loaders/jax_",
        "loaders/tensorflow_",
        "loaders/torch_",
        "buffers/episodic_replay_buffer.py",
        "buffers/replay_buffer.py",
        "buffers/tf_",
        "pattern_dataset.py",
        "tf_client.py",
        "tf_dataset.py",
        "tf_errors.py",
        "tf_exit.py",
        "timestep_dataset.py",
        "trajectory_dataset.py",
    )
    for path in PACKAGE.rglob("*.py"):
        if not path.relative_to(PACKAGE).as_posix().startswith(of_frameworks):
            roots = {name.partition(".")[0] for name in imports_of(path, only_top=True)}
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


def test_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").exists()
    assert (PACKAGE / "_rust.pyi").exists()


def test_files_are_short():
    long = {path.name: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert not {name: lines for name, lines in long.items() if lines > 500}
