"""The same program of `reverb.pybind` here and in the reference."""

import pytest
from both_sides import SIDES, answer_of

pytestmark = [pytest.mark.reference, pytest.mark.timeout(200)]


def test_a_program_of_the_names_in_pybind_sees_the_same(tmp_path):
    reference, ours = (answer_of(side, "pybind_driver.py", {"folder": str(tmp_path)}) for side in SIDES)
    assert ours == reference
