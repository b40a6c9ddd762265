"""What docs/migrate.md has: the pieces of program under its headings, and its tables of names."""

import pathlib
import re

GUIDE = pathlib.Path(__file__).parents[2] / "docs/migrate.md"
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{2,3} (.*)$", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")


def sections():
    """The text under each heading, in order."""
    _, *parts = HEADING.split(GUIDE.read_text())
    return dict(zip(parts[::2], parts[1::2], strict=True))


def pieces(heading):
    """The pieces of program under the heading that begins so."""
    [text] = (text for name, text in sections().items() if name.startswith(heading))
    return FENCE.findall(text)


def rows(text):
    """The cells of all rows of the tables in a text, without heads."""
    lines = [line for line in FENCE.sub("", text).splitlines() if line.startswith("|")]
    rules = [index for index, line in enumerate(lines) if re.fullmatch(r"\|[-|]+\|", line)]
    kept = (line for index, line in enumerate(lines) if index not in rules and index + 1 not in rules)
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in kept]


def names_of_dm_reverb():
    """Each name with its arguments, and the cells that say what it is here."""
    texts = list(sections().items())
    first = [name for name, _ in texts].index("The names of dm-reverb")
    lists = "\n".join(text for name, text in texts[first:] if name != "Modules")
    return {CODE.findall(name)[0]: cells for name, *cells in rows(lists)}


def modules_of_dm_reverb():
    """Each module, and the cell that says what it is here."""
    return {CODE.findall(name)[0]: cell for name, cell in rows(sections()["Modules"])}


def names_of_torchrl():
    """The names in each row of TorchRL's table, and the cells with ours."""
    return [(CODE.findall(name), cells) for name, *cells in rows(sections()["From TorchRL's replay buffers"])]
