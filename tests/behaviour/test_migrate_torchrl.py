"""What docs/migrate.md says to users of TorchRL: its programs run as they are printed, and its names exist."""

import importlib
import inspect
import subprocess
import sys

import guide
import pytest

HEADINGS = (
    "With TorchRL's collectors",
    "One process",
    "Several processes",
    "Slices of trajectories",
    "Another sampler",
    "The best episodes",
)
# Seconds that a program may take on a busy machine.
PATIENCE_S = 100


def programs(with_torch):
    """The program under each heading, if it imports PyTorch or if it does not."""
    found = {heading: guide.pieces(heading)[0] for heading in HEADINGS}
    return [
        pytest.param(program, id=heading)
        for heading, program in found.items()
        if ("import torch" in program) == with_torch
    ]


def run(program, folder):
    path = folder / "program.py"
    path.write_text(program)
    done = subprocess.run(
        [sys.executable, path.name],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(2 * PATIENCE_S)
@pytest.mark.parametrize("program", programs(with_torch=False))
def test_the_program_runs(program, tmp_path):
    run(program, tmp_path)


@pytest.mark.torch
@pytest.mark.timeout(2 * PATIENCE_S)
@pytest.mark.parametrize("program", programs(with_torch=True))
def test_the_program_with_tensors_runs(program, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("tensordict")
    run(program, tmp_path)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_every_buffer_storage_sampler_and_writer_of_torchrl_is_in_the_table():
    data = pytest.importorskip("torchrl.data")
    module = importlib.import_module("torchrl.data.replay_buffers")
    classes = {name for name in dir(module) if inspect.isclass(getattr(module, name)) and hasattr(data, name)}
    wanted = {name for name in classes if name.endswith(("Buffer", "Storage", "Sampler", "Writer", "Ensemble"))}
    buffers = [getattr(data, name) for name in sorted(classes) if name.endswith(("Buffer", "BufferEnsemble"))]
    methods = {name for buffer in buffers for name in dir(buffer) if not name.startswith("_")}
    listed = {name for names, _ in guide.names_of_torchrl() for name in names}
    # The bases of storages and writers are not storages.
    assert wanted - listed == {"Storage", "Writer"}
    assert methods - listed == set()
    known = classes | methods | {"prefetch="}
    assert listed - known == set()
