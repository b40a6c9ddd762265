"""Reads what the documents name."""

import re

CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"\.?[\w.-]+(/[\w.*-]+)*(/|\.(rs|py|pyi|js|ts|md|toml|proto|svg|txt|tsv|json|jinja))")
# Made by a build or a test run.
MADE = (".venv", "target/", "dist/", "demo-output/", "node_modules")


def named_paths(text, root, with_heads=True):
    """The paths in backticks, each from the root of the repository; without those of headings and first rows if asked.

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
        for path in paths if with_heads or not is_head else ():
            is_from_root = (root / path.split("/")[0]).exists()
            yield path if is_from_root else base + path
