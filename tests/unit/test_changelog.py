"""Change notes are assembled by their names, so a note with another name would be lost."""

import pathlib
import re

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "changelog.d"
NOTE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\.(added|changed|fixed)\.md")
OTHERS = {"README.md", "template.md.jinja"}


def notes():
    return sorted(path for path in FOLDER.iterdir() if path.name not in OTHERS)


def test_names_of_notes_say_topic_and_kind():
    assert [path.name for path in notes() if not NOTE.fullmatch(path.name)] == []


@pytest.mark.parametrize("path", notes(), ids=lambda path: path.name)
def test_note_is_full_sentences(path):
    text = path.read_text()
    assert text.endswith(".\n"), "a note ends with a full stop and one line feed"
    assert not text.startswith(("-", "#", " ")), "the list and its titles are made of the notes"


def test_a_first_release_has_no_bugs_to_mend():
    is_released = re.search(r"^## ", (FOLDER.parent / "CHANGELOG.md").read_text(), re.MULTILINE)
    later = [path.name for path in notes() if not path.name.endswith(".added.md")]
    assert is_released or later == [], "nobody has met another version: extend the note on the subject"
