"""The example on Ray: an agent learns, and goes on when a shard is killed."""

import pytest
from example_support import EXAMPLES, run

pytest.importorskip("ray")

# It measures nothing, but two clusters of Ray at a time are too many for a small machine.
pytestmark = [pytest.mark.ray, pytest.mark.alone, pytest.mark.timeout(240)]


def test_an_agent_learns_while_a_shard_is_killed_and_comes_back(tmp_path):
    out, err = run(EXAMPLES / "apex_ray", "--quick", "--output", tmp_path, folder=tmp_path, patience_s=200)
    assert "killed shard 0 at update" in out
    assert "had items again after" in out
    assert (tmp_path / "apex_ray.png").stat().st_size > 10_000
    assert "Traceback" not in err
