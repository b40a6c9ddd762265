"""Each argument's description stands on its own, in an editor's tooltip as well as in the docs."""

import ast
import inspect
import pathlib
import re

PACKAGE = pathlib.Path(__file__).parents[2] / "python" / "reverb"
SECTION = re.compile(r"[A-Z]\w*:")
ARGUMENT = re.compile(r"(?P<indent> +)(?P<names>\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: \([^)]*\))?: (?P<description>.*)")
DANGLING = re.compile(r"(Of|As|See|Likewise)\b")
MIN_WORDS = 3


def arguments(docstring):
    """The arguments and attributes that a docstring in Google style describes: pairs of names and description."""
    found, inside, indent = [], False, None
    for line in inspect.cleandoc(docstring).splitlines():
        if SECTION.fullmatch(line):
            inside, indent = line in ("Args:", "Attributes:"), None
        elif inside and line.strip():
            argument = ARGUMENT.fullmatch(line)
            if argument and indent in (None, argument["indent"]):
                indent = argument["indent"]
                found.append([argument["names"], argument["description"]])
            elif found:
                found[-1][1] += " " + line.strip()
    return [tuple(pair) for pair in found]


def faults(source):
    """Descriptions that mean nothing without another text, or say too little."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for names, description in arguments(ast.get_docstring(node) or ""):
                if DANGLING.match(description) or len(description.split()) < MIN_WORDS:
                    yield f"{getattr(node, 'name', 'module')}({names}): {description}"


def test_descriptions_of_arguments_stand_on_their_own():
    found = {
        f"{path.relative_to(PACKAGE)}: {fault}"
        for path in PACKAGE.rglob("*.py*")
        if path.suffix in (".py", ".pyi")
        for fault in faults(path.read_text())
    }
    assert not found, "\n".join(sorted(found))


EXAMPLE = '''
class Table:
    """A table.

    Args:
      name: {description}
      max_size: Number of items that the table holds at most.

    Returns:
      name: Of anything, since this is not an argument.
    """
'''


def test_a_description_that_stands_alone_passes():
    assert not list(faults(EXAMPLE.format(description="Name of the table.")))
    assert not list(faults(EXAMPLE.format(description="Name\n        of the table.")))


def test_dangling_and_short_descriptions_are_found():
    for description in (
        "Of the table, never empty.",
        "As in the other class.",
        "See the class Table.",
        "Likewise, unique.",
    ):
        assert len(list(faults(EXAMPLE.format(description=description)))) == 1, description
    assert len(list(faults(EXAMPLE.format(description="The name.")))) == 1
