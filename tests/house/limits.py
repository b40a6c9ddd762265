"""Writes `docs/limits.md` from comments beside the code that sets the limits: `make limits`.

Such a comment names a section of the document and fills a row of its table:

    // limit (Tables): waiting requests of one kind | {} | `ResourceExhaustedError`
    const MAX_WAITING: usize = 100_000;

`{}` is the value of what is defined below, `{NAME}` that of another constant of the file, `{file.rs:NAME}` that of one
of another file. `.0` picks one of several values, and `:bytes`, `:count` or `:time` says how it is written. A fourth
part stands in place of the files in the column `where`. Numbers are written by this program only.
"""

import dataclasses
import pathlib
import re

DOCUMENT = "docs/limits.md"
BEGIN, END = "<!-- Made by `make limits`. -->", "<!-- The end of what it makes. -->"
FILES = ("crates/*/src/**/*.rs", "python/reverb/**/*.py")
SECTIONS = (
    "Chunks and messages",
    "Tables",
    "Draws",
    "Writers",
    "Connections and calls",
    "Shared memory",
    "Beside dm-reverb",
    "Checkpoints",
    "HTTP, metrics and logs",
    "Processes",
)
COMMENT = re.compile(r" *(?://|#) limit \((?P<section>[^)]*)\): (?P<text>.*)")
MORE = re.compile(r" *(?://|#) (?P<text>.*)")
PLACEHOLDER = re.compile(r"\{(?:(?P<file>\w+\.\w+):)?(?P<name>[A-Z]\w*)?(?:\.(?P<index>-?\d+))?(?::(?P<unit>\w+))?\}")
RUST = re.compile(r"\s*(?:pub(?:\([^)]*\))? )?(?:const|static) (?P<name>\w+): [^=]+= (?P<value>[^;]+);")
PYTHON = re.compile(r"\s*(?P<name>\w+)(?:: [^=]+)? = (?P<value>[^\n]+?),?\n")
TYPES = {"u32::MAX": 2**32 - 1, "i32::MAX": 2**31 - 1}


class LimitError(ValueError):
    """A comment that cannot be made a row."""


@dataclasses.dataclass(frozen=True)
class Row:
    section: str
    what: str
    default: str
    where: str
    beyond: str


class Seconds(float):
    """A time."""


def rows_of(top):
    """The rows of all comments, in the order of the sections, then of the files."""
    rows = []
    for pattern in FILES:
        for path in sorted(top.glob(pattern)):
            text = path.read_text()
            if " limit (" in text:
                rows += _rows_of_file(top, path, text)
    return sorted(rows, key=lambda row: SECTIONS.index(row.section))


def _rows_of_file(top, path, text):
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if begun := COMMENT.match(line):
            words, below = [begun["text"]], number + 1
            while (more := MORE.match(lines[below])) and not COMMENT.match(lines[below]):
                words.append(more["text"])
                below += 1
            yield _row(top, path, text, begun["section"], " ".join(words), "".join(lines[below:]))


def _row(top, path, text, section, words, below):
    place = f"{path.relative_to(top)}: {words}"
    parts = [part.strip() for part in words.split("|")]
    if section not in SECTIONS or len(parts) not in (3, 4):
        raise LimitError(f"{place}: expected a section of {SECTIONS} and `what | default | beyond`")
    if re.search(r"\d", PLACEHOLDER.sub("", parts[1])):
        raise LimitError(f"{place}: a number that is not taken from a constant")
    below = re.sub(r"\A(?:\s*(?:///|//|#).*\n)*", "", below)
    files = {}

    def value(found):
        if found["name"]:
            file = path if not found["file"] else _file(top, path, found["file"])
            definition = _definition(file.read_text(), found["name"])
        else:
            file, definition = path, (RUST if path.suffix == ".rs" else PYTHON).match(below)
        if not definition:
            raise LimitError(f"{place}: {found[0]} is not defined")
        files[file] = None
        number = evaluate(definition["value"], file.read_text())
        if found["index"]:
            number = number[int(found["index"])]
        return written(number, found["unit"] or ("bytes" if definition["name"].lower().endswith("bytes") else None))

    default, beyond = PLACEHOLDER.sub(value, parts[1]), PLACEHOLDER.sub(value, parts[2])
    where = [f"`{file.relative_to(top).as_posix().removeprefix('crates/')}`" for file in files or [path]]
    return Row(section, parts[0], default, parts[3] if len(parts) == 4 else ", ".join(where), beyond)


def _file(top, path, name):
    """The file of a name, in the crate of `path` if there is one, else in any other."""
    crate = path.relative_to(top).parts[1]
    for files in (list(top.glob(f"crates/{crate}/src/**/{name}")), list(top.glob(f"crates/*/src/**/{name}"))):
        if len(files) == 1:
            return files[0]
    raise LimitError(f"{path}: no file {name}, or several")


def _definition(text, name):
    rust = re.search(rf"^(?= *(?:pub(?:\([^)]*\))? )?(?:const|static) {name}:)", text, re.MULTILINE)
    if rust:
        return RUST.match(text, rust.end())
    python = re.search(rf"^(?= *{name}\b[^\n]* = )", text, re.MULTILINE)
    return PYTHON.match(text, python.end()) if python else None


def evaluate(expression, text):
    """The value of a constant expression of Rust or Python; the names in it are constants of `text`."""
    expression = re.sub(r" as \w+", "", expression).strip()
    for name, limit in TYPES.items():
        expression = expression.replace(name, str(limit))
    expression = re.sub(r"Duration::from_(\w+)\(", r"\1(", expression)
    names = {
        "secs": Seconds,
        "millis": lambda value: Seconds(value / 1e3),
        "micros": lambda value: Seconds(value / 1e6),
    }
    for name in set(re.findall(r"\b[A-Z][A-Z_]+\b", expression)):
        names[name] = evaluate(_definition(text, name)["value"], text)
    return eval(expression, {"__builtins__": {}}, names)


def written(value, unit):
    """A value for people."""
    if isinstance(value, Seconds) or unit == "time":
        if value % 3600 == 0:
            return f"{value / 3600:g} h"
        if value >= 1:
            return f"{value:g} s"
        return f"{value * 1e3:g} ms" if value >= 1e-3 else f"{value * 1e6:g} µs"
    if unit == "bytes":
        value += value % 2  # The greatest number of a type is one less.
        name, size = next((name, size) for name, size in UNITS if value % size == 0)
        return f"{value // size} {name}"
    return f"{value:,}".replace(",", " ") if value >= 10_000 else str(value)


UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))


def document(top):
    """The text of the document, with new tables."""
    before, _, rest = (top / DOCUMENT).read_text().partition(BEGIN)
    rows = rows_of(top)
    parts = [BEGIN]
    for section in SECTIONS:
        table = [
            f"| {row.what} | {row.default} | {row.where} | {row.beyond} |" for row in rows if row.section == section
        ]
        head = ["| what | default | where, under `crates/` | beyond it |", "|---|---|---|---|"]
        parts.append("\n".join([f"## {section}", "", *head, *table]).replace("|  |", "| |"))
    return before + "\n\n".join([*parts, END]) + rest.partition(END)[2]


if __name__ == "__main__":
    top = pathlib.Path(__file__).resolve().parents[2]
    (top / DOCUMENT).write_text(document(top))
