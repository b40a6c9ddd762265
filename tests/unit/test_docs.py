"""What the documents name is there: paths, links, and pictures that are drawn from a text."""

import importlib.util
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
# Environments, builds and records beside the tree have documents of their own.
FOLDERS = ("docs", "benchmarks", "changelog.d", "examples", "packaging", "proto", ".github")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(path for name in FOLDERS for path in (ROOT / name).rglob("*.md"))])
MAPS = ["docs/architecture.md", "docs/limits.md", "CONTRIBUTING.md", "SECURITY.md"]
# Made by a build or a test run.
MADE = (".venv", "target/", "dist/", "demo-output/")

CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"\.?[\w.-]+(/[\w.*-]+)*(/|\.(rs|py|pyi|md|toml|proto|svg|txt|tsv|json|jinja))")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def named_paths(text):
    """The paths in backticks, each from the root of the repository.

    A heading, or the first row of a table, may name a folder. Paths that follow are relative to it, unless they begin
    with a name in the root of the repository. The next heading or table ends that.
    """
    lines = FENCE.sub("", text).splitlines()
    base = ""
    for index, line in enumerate(lines):
        paths = [path for path in CODE.findall(line) if PATH.fullmatch(path) and not path.startswith(MADE)]
        is_head = line.startswith("#") or (index + 1 < len(lines) and re.match(r"\|[-|]+\|$", lines[index + 1]))
        if is_head:
            folders = [path for path in paths if path.endswith("/")]
            base = folders[0] if folders else ""
        for path in paths:
            is_from_root = (ROOT / path.split("/")[0]).exists()
            yield path if is_from_root else base + path


def slug(heading):
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("name", MAPS)
def test_paths_in_documents_exist(name):
    paths = sorted(set(named_paths((ROOT / name).read_text())))
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
