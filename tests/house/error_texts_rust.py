"""Finds Rust code that decides by the text of an error.

Types are not known here, so names tell: `Error::Case(text)` in a pattern, `error.to_string()`, `status.message()`, and
what is made of these. What a case has in fields of its own is data, and may be compared.
"""

import re

from rust_syntax import is_for_tests, parse, text_of

# What an error is called.
ERROR_NAME = re.compile(r"(\w+_)?(e|err|error|failure|status)")
# Fields that hold a text for people.
TEXT_FIELDS = {"cause", "description", "detail", "details", "message", "msg", "reason", "text"}
STRING = re.compile(r"\b(Cow|String|str)\b")
QUESTIONS = {"contains", "ends_with", "find", "matches", "rfind", "rsplit_once", "split", "split_once", "starts_with"}
QUESTIONS |= {"eq", "eq_ignore_ascii_case", "strip_prefix", "strip_suffix"}
# Of these an argument may be the text.
OF_ARGUMENTS = {"captures", "contains", "eq", "find", "is_match"}
WRAPPERS = {"parenthesized_expression", "reference_expression", "unary_expression", "index_expression"}

# A text; and a string that is data, such as a name, which may be compared as a whole.
TEXT, DATA = "text", "data"


def found_in(sources):
    """(file, line, code) wherever code asks what an error's text says; `sources` has the text of each file."""
    trees = {file: parse(source) for file, source in sources.items()}
    cases = {}
    for tree in trees.values():
        cases.update(cases_in(tree))
    found = set()
    for file, tree in trees.items():
        finder = _Finder(cases)
        finder.visit(tree, {})
        found |= {(file, line, code) for line, code in finder.found}
    return sorted(found)


def cases_in(tree):
    """The cases of all enums called `...Error`: by name, the types of their fields, by position or by name."""
    cases, waiting = {}, [tree]
    while waiting:
        node = waiting.pop()
        waiting += node.named_children
        if node.type == "enum_item" and text_of(node.child_by_field_name("name")).endswith("Error"):
            for case in node.child_by_field_name("body").named_children:
                if case.type == "enum_variant":
                    cases.setdefault(text_of(case.child_by_field_name("name")), {}).update(fields_of(case))
    return cases


def fields_of(case):
    body = case.child_by_field_name("body")
    if body is None:
        return {}
    if body.type == "ordered_field_declaration_list":
        types = [node for node in body.named_children if node.type not in ("attribute_item", "line_comment")]
        return {position: text_of(node) for position, node in enumerate(types)}
    fields = [node for node in body.named_children if node.type == "field_declaration"]
    return {text_of(node.child_by_field_name("name")): text_of(node.child_by_field_name("type")) for node in fields}


class _Finder:
    """Walks a file. `names` are the local names that hold a text, or a string that is data."""

    def __init__(self, cases, first_line=1):
        self.cases = cases
        self.first_line = first_line
        self.found = set()

    def visit(self, node, names):
        visit = getattr(self, f"visit_{node.type}", self.visit_children)
        visit(node, names)

    def visit_children(self, node, names):
        attributes = []
        for child in node.named_children:
            if child.type == "attribute_item":
                attributes.append(text_of(child))
            else:
                if not any(is_for_tests(text) for text in attributes):
                    self.visit(child, names)
                attributes = []

    def visit_block(self, node, names):
        self.visit_children(node, dict(names))

    def visit_let_declaration(self, node, names):
        """Adds to the names of the block around it."""
        self.visit_children(node, names)
        pattern, value = node.child_by_field_name("pattern"), node.child_by_field_name("value")
        if pattern.type == "identifier" and value is not None:
            names[text_of(pattern)] = self.kind(value, names)
        names.update(self.bound(pattern))

    def visit_if_expression(self, node, names):
        condition = node.child_by_field_name("condition")
        inside = {**names, **self.bound(condition)}
        for child in node.named_children:
            self.visit(child, names if child == node.child_by_field_name("alternative") else inside)

    visit_while_expression = visit_if_expression

    def visit_match_expression(self, node, names):
        if self.kind(node.child_by_field_name("value"), names) == TEXT:
            self.add(node, f"match {text_of(node.child_by_field_name('value'))}")
        self.visit_children(node, names)

    def visit_match_arm(self, node, names):
        self.visit_children(node, {**names, **self.bound(node.child_by_field_name("pattern"))})

    def visit_closure_expression(self, node, names):
        self.visit_children(node, {**names, **self.bound(node.child_by_field_name("parameters"))})

    def visit_binary_expression(self, node, names):
        sides = [node.child_by_field_name(side) for side in ("left", "right")]
        compares = text_of(node.child_by_field_name("operator")) in ("==", "!=")
        if compares and any(self.kind(side, names) == TEXT for side in sides):
            self.add(node, text_of(node))
        self.visit_children(node, names)

    def visit_call_expression(self, node, names):
        function = node.child_by_field_name("function")
        if function.type == "field_expression":
            method = text_of(function.child_by_field_name("field"))
            arguments = node.child_by_field_name("arguments").named_children
            kind = self.kind(function.child_by_field_name("value"), names)
            of_receiver = method in QUESTIONS and (kind == TEXT or (kind == DATA and method != "eq"))
            of_argument = method in OF_ARGUMENTS and any(self.kind(node, names) == TEXT for node in arguments)
            if of_receiver or of_argument:
                self.add(node, text_of(node))
        self.visit_children(node, names)

    def visit_macro_invocation(self, node, names):
        """What a macro is given has no syntax, but mostly that of arguments, or of a `match`."""
        tree = next((child for child in node.children if child.type == "token_tree"), None)
        if tree is None:
            return
        given = text_of(tree)[1:-1]
        before = "fn f() { g("
        text = f"{before}{given}); }}"
        if text_of(node.child_by_field_name("macro")) == "matches":
            end = end_of_first(tree)
            text = f"fn f() {{ match ({given[:end]}) {{ {given[end + 1 :].rstrip().rstrip(',')} => () }} }}"
        inside = _Finder(self.cases, self.first_line + tree.start_point.row)
        inside.visit(parse(text), names)
        self.found |= inside.found

    def add(self, node, code):
        self.found.add((self.first_line + node.start_point.row, " ".join(code.split())))

    def kind(self, node, names):
        """Whether an expression is an error's text, a string of an error, or neither."""
        if node.type == "identifier":
            return names.get(text_of(node))
        if node.type in WRAPPERS:
            return self.kind(node.named_children[0], names)
        if node.type == "macro_invocation":
            is_format = text_of(node.child_by_field_name("macro")) == "format"
            words = re.findall(r"\w+", text_of(node))
            return TEXT if is_format and any(ERROR_NAME.fullmatch(w) or names.get(w) == TEXT for w in words) else None
        if node.type == "field_expression":
            is_text = text_of(node.child_by_field_name("field")) in TEXT_FIELDS
            return TEXT if is_text and is_error(node.child_by_field_name("value")) else None
        if node.type != "call_expression" or node.child_by_field_name("function").type != "field_expression":
            return None
        function = node.child_by_field_name("function")
        method, receiver = text_of(function.child_by_field_name("field")), function.child_by_field_name("value")
        if method == "message" or (method == "to_string" and is_error(receiver)):
            return TEXT
        return self.kind(receiver, names) if method not in ("is_empty", "len") else None

    def bound(self, pattern):
        """The names that patterns of error cases below a node bind to a text or a string."""
        names = {}
        if pattern.type in ("tuple_struct_pattern", "struct_pattern"):
            path = text_of(pattern.child_by_field_name("type")).split("::")
            if path[-1] in self.cases if len(path) == 1 or path[-2] == "Self" else path[-2].endswith("Error"):
                of_case = self.of_tuple if pattern.type == "tuple_struct_pattern" else self.of_struct
                names.update(of_case(pattern, self.cases.get(path[-1], {})))
        if pattern.type in ("block", "match_block"):
            return names
        for child in pattern.named_children:
            names.update(self.bound(child))
        return names

    def of_tuple(self, pattern, types):
        for position, child in enumerate(pattern.named_children[1:]):
            name = bound_name(child)
            if name and STRING.search(types.get(position, "String")):
                yield name, TEXT

    def of_struct(self, pattern, types):
        for child in pattern.named_children[1:]:
            if child.type == "field_pattern":
                field = text_of(child.child_by_field_name("name"))
                inner = child.child_by_field_name("pattern")
                name = bound_name(inner) if inner else field
                if name and STRING.search(types.get(field, "String")):
                    yield name, TEXT if field in TEXT_FIELDS else DATA


def bound_name(pattern):
    while pattern.type in ("ref_pattern", "mut_pattern", "reference_pattern", "captured_pattern"):
        pattern = pattern.named_children[0] if pattern.type == "captured_pattern" else pattern.named_children[-1]
    return text_of(pattern) if pattern.type == "identifier" else None


def is_error(node):
    if node.type in WRAPPERS:
        return is_error(node.named_children[0])
    if node.type == "field_expression":
        node = node.child_by_field_name("field")
    return bool(ERROR_NAME.fullmatch(text_of(node)))


def end_of_first(tree):
    """Where in a macro's parentheses the first comma outside of brackets stands."""
    for child in tree.children:
        if child.type == ",":
            return child.start_byte - tree.start_byte - 1
    return len(text_of(tree)) - 2
