"""What the documents name is there: paths, links, and pictures that are drawn from a text."""

import importlib.util
import pathlib
import re

import limits
import pytest
from documents import FENCE, named_paths

ROOT = pathlib.Path(__file__).parents[2]
# Environments, builds and records beside the tree have documents of their own.
FOLDERS = ("docs", "benchmarks", "changelog.d", "examples", "packaging", "proto", ".github")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(path for name in FOLDERS for path in (ROOT / name).rglob("*.md"))])
MAPS = ["docs/architecture.md", "docs/limits.md", "CONTRIBUTING.md", "SECURITY.md"]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def slug(heading):
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("name", MAPS)
def test_paths_in_documents_exist(name):
    paths = sorted(set(named_paths((ROOT / name).read_text(), ROOT)))
    assert paths
    assert [path for path in paths if not any(ROOT.glob(path.rstrip("/")))] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_resolve(document):
    broken = []
    for link in LINK.findall(FENCE.sub("", document.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        if not target.exists():
            broken.append(link)
        elif anchor:
            headings = re.findall(r"^#+ (.*)$", FENCE.sub("", target.read_text()), re.MULTILINE)
            if anchor not in map(slug, headings):
                broken.append(link)
    assert broken == []


def test_every_folder_and_marker_of_tests_is_in_the_map():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    folders = [path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name[0] not in "._"]
    assert [name for name in folders if f"| `tests/{name}/` |" not in text] == []
    options = re.search(r"^markers = \[\n(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL)
    markers = re.findall(r'"(\w+): ', options[1])
    assert len(markers) > 5
    assert [name for name in markers if f"`{name}`" not in text.partition("| marker | needs |")[2]] == []


def test_every_decision_is_in_the_index():
    folder = ROOT / "docs/decisions"
    listed = LINK.findall((folder / "README.md").read_text())
    assert sorted(path.name for path in folder.glob("[0-9]*.md")) == sorted(
        name for name in listed if name[0].isdigit()
    )


def test_pictures_are_drawn_from_their_texts():
    folder = ROOT / "docs/figures"
    spec = importlib.util.spec_from_file_location("draw", folder / "draw.py")
    draw = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draw)
    texts = sorted(folder.glob("*.txt"))
    assert texts
    old = [text.name for text in texts if text.with_suffix(".svg").read_text() != draw.draw(text.read_text())]
    assert old == [], "run `make figures`"


def test_limits_are_those_of_the_code():
    assert (ROOT / limits.DOCUMENT).read_text() == limits.document(ROOT), "run `make limits`"
