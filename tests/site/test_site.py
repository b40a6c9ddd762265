"""The built site of the documentation: its links resolve, it asks no other host, and it has all public names."""

import ast
import html.parser
import importlib
import json
import pathlib
import re
import urllib.parse

import pytest

import reverb

pytestmark = pytest.mark.site

ROOT = pathlib.Path(__file__).parents[2]
SITE = ROOT / "site"
LOADED = {("script", "src"), ("img", "src"), ("source", "srcset"), ("iframe", "src"), ("link", "href")}
# Links of pages to other pages, which load nothing.
RELATIONS = ("canonical", "next", "prev")


class Page(html.parser.HTMLParser):
    """What a page has: its anchors, its links, and what a browser loads with it."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.loaded = set(), [], []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        for name, value in attributes:
            if (tag, name) in LOADED and values.get("rel") not in RELATIONS:
                self.loaded.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)


@pytest.fixture(scope="module")
def pages():
    found = {path: Page(path) for path in SITE.rglob("*.html")}
    assert len(found) > 50
    return found


def targets(path, links):
    """The file and the anchor of each link into the site."""
    for link in links:
        parts = urllib.parse.urlsplit(link)
        if not parts.scheme and not parts.netloc:
            file = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            yield link, file, urllib.parse.unquote(parts.fragment)


# The page for what is not there does not know where it will lie.
def test_links_inside_resolve(pages):
    broken = []
    for path, page in pages.items():
        if path == SITE / "404.html":
            continue
        for link, file, anchor in targets(path, page.links + page.loaded):
            file = file / "index.html" if file.is_dir() else file
            if not file.is_file() or (anchor and file in pages and anchor not in pages[file].anchors):
                broken.append(f"{path.relative_to(SITE)}: {link}")
    assert broken == []


def test_pages_load_nothing_from_other_hosts(pages):
    loaded = {link for page in pages.values() for link in page.loaded if re.match(r"(https?:)?//", link)}
    assert loaded == set()
    styles = "".join(path.read_text() for path in SITE.rglob("*.css"))
    assert re.findall(r"url\(['\"]?(?:https?:)?//[^)]*|@import", styles) == []


def test_lists_and_tables_are_rendered():
    raw = [path for path in SITE.glob("*.html") if re.search(r"<p>[^<]*(\n- |\|---)", path.read_text())]
    assert raw == []


@pytest.mark.parametrize("word", ["error_buffer", "HindsightAdder", "burn-in"])
def test_the_index_of_the_search_has_words_of_pages_and_of_the_reference(word):
    items = json.loads((SITE / "search.json").read_text())["items"]
    assert any(word in item["text"] + item["title"] for item in items)
    # The same for pages that are opened as files.
    assert word in (SITE / "search.js").read_text()


def public_names():
    """Each public name of a public module."""
    lists = {ast.Dict: "keys", ast.List: "elts"}
    found = []
    places = {place.partition(":")[0] for place in reverb._NAMES.values() if ":" not in place}
    for place in sorted(places | {"logging"}):
        path = pathlib.Path(importlib.util.find_spec(f"reverb.{place}").origin)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("_NAMES", "__all__"):
                names = getattr(node.value, lists.get(type(node.value), ""), [])
                found += [(place, name.value) for name in names]
    return found


def test_every_public_name_is_in_the_reference(pages):
    names = public_names()
    assert ("client", "Client") in names
    assert ("loaders", "JaxLoader") in names
    missing = [
        f"reverb.{module}.{name}"
        for module, name in names
        if not any(
            re.search(rf"(^|\.){name}$", anchor) or anchor == name.lower()
            for anchor in pages[SITE / f"reference/{module}.html"].anchors
        )
    ]
    assert missing == []


def test_every_name_of_the_package_is_in_the_list():
    text = (SITE / "reference/index.html").read_text()
    assert [name for name, place in reverb._NAMES.items() if ":" in place and f"reverb.{name}<" not in text] == []
    modules = {place for place in reverb._NAMES.values() if ":" not in place}
    assert [name for name in modules if f"<code>reverb.{name}</code>" not in text] == []
