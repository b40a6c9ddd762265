"""Finds Python code that decides by the text of an error."""

import ast
import re

# What an error is called where no `except ... as` says so.
ERROR_NAME = re.compile(r"(e|err|ex|exc|exception|error|failure)|\w+_(err|error|exc|exception)")
# What holds a text of an error.
TEXT_FIELDS = {"args", "details", "message", "msg", "reason", "strerror"}
QUESTIONS = {"count", "endswith", "find", "index", "partition", "rfind", "rindex", "rpartition", "split", "startswith"}
PATTERN_QUESTIONS = {"findall", "finditer", "fullmatch", "match", "search"}
EMPTY_ANSWER = (None, "")


def found_in(source):
    """The lines of a file where code asks what an error's text says, and the code there."""
    tree = ast.parse(source)
    found = set()
    for function in [tree, *(node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))]:
        scope = _Scope(function)
        found |= {(node.lineno, ast.unparse(node)) for node in scope.nodes if scope.asks(node)}
    return sorted(found)


FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class _Scope:
    """One function without those inside it: the names there that hold errors, and those that hold their texts."""

    def __init__(self, function):
        self.nodes = list(_own_nodes(function))
        handlers = [node for node in self.nodes if isinstance(node, ast.ExceptHandler)]
        self.errors = {handler.name for handler in handlers if handler.name}
        self.texts = set()
        for _ in range(3):  # A text of a text of a text.
            for node in self.nodes:
                if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    names = {target.id for target in targets if isinstance(target, ast.Name)}
                    if self.is_text(node.value):
                        self.texts |= names

    def is_error(self, node):
        return isinstance(node, ast.Name) and (node.id in self.errors or bool(ERROR_NAME.fullmatch(node.id)))

    def is_text(self, node):
        """Whether an expression is an error's text, or made of one."""
        if isinstance(node, ast.Name):
            return node.id in self.texts
        if isinstance(node, ast.Attribute):
            return node.attr in TEXT_FIELDS and self.is_error(node.value)
        if isinstance(node, ast.Subscript):
            return self.is_text(node.value)
        if isinstance(node, ast.JoinedStr):
            values = [value for value in node.values if isinstance(value, ast.FormattedValue)]
            return any(self.is_error(value.value) or self.is_text(value.value) for value in values)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                return node.func.id in ("repr", "str") and any(self.is_error(value) for value in node.args)
            # `error.details()`, and `text.lower()` of a text.
            is_method = isinstance(node.func, ast.Attribute)
            return is_method and (self.is_text(node.func) or self.is_text(node.func.value))
        return False

    def asks(self, node):
        if isinstance(node, ast.Compare):
            return self._compares(node)
        if isinstance(node, ast.Match):
            return self.is_text(node.subject)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        if node.func.attr in QUESTIONS and self.is_text(node.func.value):
            return True
        return node.func.attr in PATTERN_QUESTIONS and any(self.is_text(value) for value in node.args)

    def _compares(self, node):
        sides = [node.left, *node.comparators]
        if not any(self.is_text(side) for side in sides):
            return False
        # Whether there is a text at all may be asked.
        return not any(isinstance(side, ast.Constant) and side.value in EMPTY_ANSWER for side in sides)


def _own_nodes(function):
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, FUNCTIONS):
            waiting.extend(ast.iter_child_nodes(node))
