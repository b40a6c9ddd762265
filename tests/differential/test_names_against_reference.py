"""The table of names in docs/migrate.md has all public names of the reference, and no other."""

import guide
import pytest
from both_sides import answer_of

pytestmark = [pytest.mark.reference, pytest.mark.timeout(100)]


def test_the_guide_lists_every_name_of_the_reference_with_its_arguments():
    answer = answer_of("reference", "names_driver.py", None)
    assert list(guide.modules_of_dm_reverb()) == [name.partition(".")[2] for name in answer["modules"]]
    assert sorted(guide.names_of_dm_reverb()) == sorted(answer["names"])
