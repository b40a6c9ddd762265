"""The options that Python hands over as objects are those that the extension reads from them."""

import ast
import pathlib
import re

import pytest

TOP = pathlib.Path(__file__).parents[2]
BINDING = TOP / "crates" / "reverb-python" / "src"
# Each class, its module, and the struct of the extension that is read from it.
PAIRS = [
    ("WriterOptions", "writing/options.py", "WriterOptions", "writer/session.rs"),
    ("ListenOptions", "_settings.py", "Listen", "server.rs"),
    ("ObserveOptions", "_settings.py", "Observe", "server.rs"),
    ("DurableOptions", "_settings.py", "Durable", "durability.rs"),
    ("Durability", "data/durability.py", "Durability", "durability.rs"),
]


def fields_of_class(source, name):
    """The annotated fields of a class."""
    [found] = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name]
    return {node.target.id for node in found.body if isinstance(node, ast.AnnAssign)}


def fields_of_struct(source, name):
    """The fields of a struct that is read from a Python object."""
    body = re.search(rf"#\[derive\(FromPyObject\)\]\n(?:pub )?struct {name} {{\n(.*?)\n}}", source, re.DOTALL)
    return set(re.findall(r"^    (?:pub )?(\w+): ", body[1], re.MULTILINE))


@pytest.mark.parametrize(("name", "module", "struct", "file"), PAIRS, ids=[name for name, *_ in PAIRS])
def test_the_extension_reads_every_option(name, module, struct, file):
    given = fields_of_class((TOP / "python" / "reverb" / module).read_text(), name)
    read = fields_of_struct((BINDING / file).read_text(), struct)
    assert len(given) >= 2
    assert given == read


def test_fields_are_found():
    assert fields_of_class("class A:\n    a: int\n    b: str = ''\n    def f(self): ...\n", "A") == {"a", "b"}
    rust = "#[derive(FromPyObject)]\npub struct A {\n    /// Doc: of it.\n    pub a: u8,\n    b: Vec<A>,\n}\n"
    assert fields_of_struct(rust, "A") == {"a", "b"}
