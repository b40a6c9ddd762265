"""Third-party agents that learn with this package. Each ends once it plays well, and fails if it never does."""

import pytest
from programs_support import HERE, run

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]


# CartPole returns: 200 at most, about 20 at random. Either agent takes less than half a minute.
@pytest.mark.parametrize("name", ["tf_agents_dqn", "acme_dqn"])
def test_an_agent_learns_to_balance_a_pole(tmp_path, name):
    written = run(tmp_path, HERE / "agents" / f"{name}.py", "--wanted", 150, "--seconds", 200)
    assert written.splitlines()[-1].startswith(f"{name}: from ")
