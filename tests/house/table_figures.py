"""Writes the class of a table's figures for Python from their declaration in Rust: `make table-figures`."""

import dataclasses
import pathlib
import re
import textwrap

DECLARATION = "crates/reverb-core/src/table/figures.rs"
CLASS = "python/reverb/data/table_figures.py"
GROUP = re.compile(r"^ {12}(?P<name>\w+) \{\n(?P<rows>.*?)^ {12}\}\n", re.MULTILINE | re.DOTALL)
ROW = re.compile(
    r"(?P<help>(?: +///[^\n]*\n)+) +(?P<field>\w+)(?: \(\"(?P<name>\w+)\"\))?: (?:Option<)?(?P<type>\w+)>?, "
    r"(?P<metric>[^;]*), \w+;"
)
TYPES = {
    "u64": "int",
    "i64": "int",
    "f64": "float",
    "RemovalCounts": "dict[str, int]",
    "ClientCounts": "dict[str, int]",
}
HEAD = '''"""The figures of a table that dm-reverb lacks. Made by `make table-figures`."""

import dataclasses

__all__ = ["TableFigures"]


@dataclasses.dataclass(kw_only=True)
class TableFigures:
    """Figures of a table. None for one that is not known.

    Attributes:
'''


@dataclasses.dataclass(frozen=True)
class Figure:
    """One figure: its name for users, its field on the wire, its type in Python, what it means, its group, its metric.

    The type of a histogram is None: Python has none of them.
    """

    name: str
    field: str
    type: str | None
    help: str
    group: str
    metric: str


def figures_of(top):
    """The figures in the order of their declaration."""
    groups = list(GROUP.finditer((top / DECLARATION).read_text()))
    for group in groups:
        rows = list(ROW.finditer(group["rows"]))
        assert len(rows) == group["rows"].count(";"), f"{DECLARATION}: cannot read the figures of {group['name']}"
        for row in rows:
            words = " ".join(line.strip().removeprefix("///").strip() for line in row["help"].splitlines())
            name = row["name"] or row["field"]
            yield Figure(name, row["field"], TYPES.get(row["type"]), words, group["name"], row["metric"])


def python_class(top):
    """The text of the module."""
    docs, fields = [], []
    for figure in figures_of(top):
        if figure.group == "reference" or figure.type is None:
            continue
        docs.append(
            textwrap.fill(f"{figure.name}: {figure.help}", 120, initial_indent=" " * 6, subsequent_indent=" " * 8)
        )
        options = "default=None, compare=False"
        if figure.field != figure.name:
            options += f', metadata={{"name": "{figure.field}"}}'
        fields.append(f"    {figure.name}: {figure.type} | None = dataclasses.field({options})")
    return "\n".join([HEAD.rstrip("\n"), *docs, '    """\n', *fields, ""])


if __name__ == "__main__":
    TOP = pathlib.Path(__file__).parents[2]
    (TOP / CLASS).write_text(python_class(TOP))
