"""The source tree that this file lies in keeps the rules. `python tests/house/show.py` prints what the checks see."""

import pathlib

import checks
import pytest

TOP = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tree():
    return checks.Tree(TOP)


def test_tree_is_read(tree):
    """A check that sees no files would accept everything."""
    assert "crates/reverb-core/src/lib.rs" in tree.rust.names
    assert "python/reverb/_binding.py" in tree.python.names
    assert tree.python.outside["python/reverb/_binding.py"] >= {"reverb._rust"}


@pytest.mark.parametrize("check", checks.ALL, ids=lambda check: check.__name__)
def test_tree_passes_the_check_of(check, tree):
    assert not (problems := check(tree)), "\n".join(["", *problems])
