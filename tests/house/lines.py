"""Which lines of a file are code: neither blank, nor part of a comment or of a docstring."""

import ast
import dataclasses
import functools
import io
import re
import tokenize

import rust_syntax
import tree_sitter

# Comments that have lines of their own. One behind code changes nothing: its line is code.
COMMENTS = {
    ".css": re.compile(r"^\s*/\*.*?\*/", re.MULTILINE | re.DOTALL),
    ".html": re.compile(r"^\s*<!--.*?-->", re.MULTILINE | re.DOTALL),
    ".js": re.compile(r"^\s*(//.*$|/\*(.|\n)*?\*/)", re.MULTILINE),
    ".proto": re.compile(r"^\s*//.*$", re.MULTILINE),
}
ENDINGS = (".py", ".pyi", ".rs", *COMMENTS)
# In the first line of a file that a program has written.
GENERATED = "@generated"


@dataclasses.dataclass(frozen=True)
class Function:
    """A function: its name, its first line, and how many lines of code it has, its signature included."""

    name: str
    line: int
    length: int


class Source:
    """A file of code.

    Args:
      path: Its path, of which the ending says the language.
    """

    def __init__(self, path):
        self.path = path
        self.text = path.read_text()

    def count(self):
        """The number of lines of code."""
        return sum(_is_code(self.code))

    def count_untested(self):
        """The same without what only tests compile, and 0 for a generated file."""
        return 0 if GENERATED in self.text.partition("\n")[0] else sum(_is_code(self.untested_code()))

    def untested_code(self):
        """The code with blanks for what only tests compile."""
        return _blanked(self.code, self._ranges_for_tests) if self._is_rust else self.code

    def modules_for_tests(self):
        """The names of modules in other files that are declared for tests only."""
        code = self.text.encode()
        found = [re.search(rb"\bmod\s+(\w+)\s*;\Z", code[start:end]) for start, end in self._ranges_for_tests]
        return {name[1].decode() for name in found if name}

    def has_more_than(self, limit):
        """Whether there are more lines of code than `limit`; quicker than a count."""
        return self.text.count("\n") >= limit and self.count() > limit

    def functions_of_more_than(self, limit):
        """The functions of a file of Python or Rust that have more lines of code than `limit`, inner ones too."""
        found = self._rust_functions() if self._is_rust else self._python_functions()
        found = [(name, first, last) for name, first, last in found if last - first >= limit]
        lines = _is_code(self.code) if found else []
        functions = [Function(name, first, sum(lines[first - 1 : last])) for name, first, last in found]
        return [function for function in functions if function.length > limit]

    @property
    def _is_rust(self):
        return self.path.suffix == ".rs"

    @functools.cached_property
    def _rust(self):
        return rust_syntax.parse(self.text)

    @functools.cached_property
    def _python(self):
        return ast.parse(self.text)

    @functools.cached_property
    def code(self):
        """The text with blanks for each comment and docstring."""
        if self._is_rust:
            comments = _nodes(self._rust, "[(line_comment) (block_comment)] @found")
            return _blanked(self.text, [(node.start_byte, node.end_byte) for node in comments])
        if self.path.suffix in COMMENTS:
            return COMMENTS[self.path.suffix].sub(lambda comment: "\n" * comment[0].count("\n"), self.text)
        return self._python_code()

    def _python_code(self):
        lines = self.text.splitlines(keepends=True)
        docstrings = {
            (node.lineno, node.col_offset)
            for node in ast.walk(self._python)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        }
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.start in docstrings):
                (first, before), (last, after) = token.start, token.end
                rest = lines[last - 1][after:]
                lines[first - 1] = lines[first - 1][:before] + ("\n" if last > first else rest)
                lines[first:last] = ["\n"] * (last - first - 1) + [rest] * (last > first)
        return "".join(lines)

    @functools.cached_property
    def _ranges_for_tests(self):
        """Where a Rust file has items that only tests compile, with their attributes."""
        ranges = []
        for attribute in _nodes(self._rust, "(attribute_item) @found"):
            if rust_syntax.is_for_tests(attribute.text.decode()):
                item = attribute.next_named_sibling
                while item.type in ("attribute_item", "block_comment", "line_comment"):
                    item = item.next_named_sibling
                ranges.append((attribute.start_byte, item.end_byte))
        return ranges

    def _rust_functions(self):
        for node in _nodes(self._rust, "(function_item) @found"):
            name = node.child_by_field_name("name").text.decode()
            yield name, node.start_point.row + 1, node.end_point.row + 1

    def _python_functions(self):
        for node in ast.walk(self._python):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name, node.lineno, node.end_lineno


def _is_code(text):
    return [bool(line.strip()) for line in text.splitlines()]


def _blanked(text, ranges):
    code = bytearray(text.encode())
    for start, end in ranges:
        code[start:end] = re.sub(rb"[^\n]", b" ", code[start:end])
    return code.decode()


@functools.cache
def _query(text):
    return tree_sitter.Query(rust_syntax.PARSER.language, text)


def _nodes(tree, query):
    return tree_sitter.QueryCursor(_query(query)).captures(tree).get("found", [])
