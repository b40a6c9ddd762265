"""The scripts in `examples`, written for dm-reverb. Each checks what it shows, and prints so at its end."""

import pytest
from programs_support import HERE, run

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]


@pytest.mark.parametrize("name", ["readme", "demo", "client_survey"])
def test_every_example_holds(tmp_path, name):
    written = run(tmp_path, HERE / "examples" / f"{name}.py")
    assert written.splitlines()[-1] == f"{name}: all examples hold"
    assert "SKIPPED" not in written


def test_patterns_hold_with_rlds_and_the_episodes_that_envlogger_records(tmp_path):
    written = run(tmp_path, HERE / "examples" / "rlds_patterns.py", "--require-packages")
    assert "STAND-IN" not in written
    for line in ("items: 180", "probability: 0.005555555555555556", "rlds_patterns: all examples hold"):
        assert line in [each.strip() for each in written.splitlines()]


@pytest.mark.parametrize(
    ("package", "kinds"),
    [("tf_agents.replay_buffers", 4), ("reverb.buffers", 3)],
)
def test_buffers_of_tf_agents_and_ours_in_their_place_hold(tmp_path, package, kinds):
    written = run(tmp_path, HERE / "examples" / "tf_agents_buffers.py", "--buffers", package)
    assert f"tf_agents_buffers: all examples hold ({kinds} of 4 kinds)" in written.splitlines()
