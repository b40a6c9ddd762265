"""Reads one Rust file: the modules in it, what each defines, and which paths each names.

Code that only tests compile is left out. Comments, and so links in them, are not seen.
"""

import dataclasses
import re

import tree_sitter
import tree_sitter_rust

PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))

TYPES = {"enum_item", "struct_item", "trait_item", "type_item", "union_item"}
VALUES = {"const_item", "function_item", "static_item", "struct_item"}
PATHS = {"scoped_identifier", "scoped_type_identifier"}
NAMES = {"crate", "identifier", "metavariable", "primitive_type", "self", "super", "type_identifier"}
PATH_IN_TEXT = re.compile(r'"((?:crate|self|super|\w+)(?:::\w+)+)"')


@dataclasses.dataclass(frozen=True)
class Use:
    """One name that a `use` brings in, or one glob."""

    path: tuple
    name: str
    is_glob: bool
    is_public: bool


@dataclasses.dataclass(eq=False)
class Module:
    """One module: its names, and what it names."""

    file: str
    path: tuple
    parent: "Module | None" = None
    # Each name with the kinds of things that bear it: type, value, macro.
    items: dict = dataclasses.field(default_factory=dict)
    children: dict = dataclasses.field(default_factory=dict)
    # `mod name;`, with the `#[path]` if it has one: callers that know the folders read those files.
    elsewhere: dict = dataclasses.field(default_factory=dict)
    uses: list = dataclasses.field(default_factory=list)
    # Names of more than one segment, written anywhere.
    paths: set = dataclasses.field(default_factory=set)
    # Macros called by a bare name.
    calls: set = dataclasses.field(default_factory=set)
    # Every identifier: what a glob brings in is used if it is among these.
    words: set = dataclasses.field(default_factory=set)
    # Whether `#[macro_use]` shows its macros to the modules beside it.
    shows_macros: bool = False
    exported_macros: set = dataclasses.field(default_factory=set)

    def root(self):
        return self.parent.root() if self.parent else self


def parse(text):
    return PARSER.parse(text.encode()).root_node


def read(text, file, path=(), parent=None):
    """The module of a file, with the inline modules in it as its children."""
    module = Module(file, path, parent)
    _Reader().items(parse(text), module, "module")
    return module


class _Reader:
    """Walks a file. `place` says where it is: in a `module`, in the `block` of a function, or in an `impl`."""

    def items(self, node, module, place):
        """The children of a node, less those that only tests compile."""
        attributes = []
        for child in node.children:
            if child.type == "attribute_item":
                attributes.append(child)
            elif child.type not in ("block_comment", "line_comment"):
                texts = [attribute.text.decode() for attribute in attributes]
                if not any(is_for_tests(text) for text in texts):
                    for attribute in attributes:
                        self.attribute(attribute, module)
                    self.node(child, module, place, texts)
                attributes = []

    def node(self, node, module, place, attributes=()):
        kind = node.type
        if kind == "visibility_modifier":
            return
        if kind == "use_declaration":
            self.use(node, module)
            return
        if kind == "mod_item":
            self.module(node, module, attributes)
            return
        if kind == "extern_crate_declaration":
            name, alias = (node.child_by_field_name(field) for field in ("name", "alias"))
            module.uses.append(Use(("", text_of(name)), text_of(alias or name), False, False))
            return
        if place != "impl" and kind in TYPES | VALUES:
            add_item(module, text_of(node.child_by_field_name("name")), kind)
        if kind == "macro_definition":
            self.macro(node, module, attributes)
        elif kind == "macro_invocation":
            self.call(node, module)
        elif kind == "token_tree":
            self.tokens(node, module)
        elif kind in ("inner_attribute_item", "attribute_item"):
            self.attribute(node, module)
        else:
            if kind in PATHS and node.parent.type not in PATHS:
                add_path(module, flatten(node))
            if kind in NAMES:
                module.words.add(text_of(node))
            self.items(node, module, place_inside(kind, place))

    def module(self, node, module, attributes):
        name, body = text_of(node.child_by_field_name("name")), node.child_by_field_name("body")
        shows_macros = any(re.search(r"\bmacro_use\b", text) for text in attributes)
        if body is None:
            paths = [re.search(r'#\[path\s*=\s*"([^"]*)"', text) for text in attributes]
            module.elsewhere[name] = (next((path[1] for path in paths if path), None), shows_macros)
            return
        child = Module(module.file, (*module.path, name), module, shows_macros=shows_macros)
        module.children.setdefault(name, []).append(child)
        self.items(body, child, "module")

    def use(self, node, module):
        is_public = any(child.type == "visibility_modifier" for child in node.children)
        for path, alias, is_glob in used(node.child_by_field_name("argument"), ()):
            module.uses.append(Use(path, alias or path[-1], is_glob, is_public))
            module.words.update(path)

    def macro(self, node, module, attributes):
        name = text_of(node.child_by_field_name("name"))
        module.items.setdefault(name, set()).add("macro")
        if any("macro_export" in text for text in attributes):
            module.exported_macros.add(name)
        for rule in node.children:
            if rule.type == "macro_rule":
                self.tokens(rule.child_by_field_name("right"), module)

    def call(self, node, module):
        name = node.child_by_field_name("macro")
        if name.type == "identifier":
            module.calls.add(text_of(name))
        else:
            add_path(module, flatten(name))
        for child in node.children:
            if child.type == "token_tree":
                self.tokens(child, module)

    def attribute(self, node, module):
        for tree in node.named_children[0].children:
            if tree.type == "token_tree":
                self.tokens(tree, module)
            elif tree.type in PATHS:
                add_path(module, flatten(tree))
        # serde and its kind name functions in texts.
        for path in PATH_IN_TEXT.findall(node.text.decode()):
            add_path(module, tuple(path.split("::")))

    def tokens(self, tree, module):
        """Paths and macro calls in what a macro is given, which has no syntax of its own."""
        tokens = list(leaves(tree))
        at = 0
        while at < len(tokens):
            if tokens[at] == "::" or is_name(tokens[at]):
                paths, at = paths_at(tokens, at)
                for path in paths:
                    module.words.update(path)
                    add_path(module, path)
                if len(paths) == 1 and len(paths[0]) == 1 and tokens[at : at + 1] == ["!"]:
                    module.calls.add(paths[0][0])
            else:
                at += 1


def place_inside(kind, place):
    if kind in ("impl_item", "trait_item", "foreign_mod_item"):
        return "impl"
    return "block" if kind == "block" else place


def is_for_tests(attribute):
    return bool(re.match(r"#\[\s*(cfg\s*\(\s*(test\s*\)|all\s*\(\s*test\b)|(\w+::)*test\b)", attribute))


def text_of(node):
    return node.text.decode().removeprefix("r#")


def add_item(module, name, kind):
    kinds = module.items.setdefault(name, set())
    kinds.update({"type"} if kind in TYPES else set(), {"value"} if kind in VALUES else set())


def add_path(module, path):
    if path and len(path) > 1:
        module.paths.add(path)


def flatten(node):
    """The segments of a path without its generic arguments; an empty first one for `::name`; None for `<T as X>::y`."""
    if node.type in NAMES:
        return (text_of(node),)
    if node.type in ("generic_type", "generic_type_with_turbofish"):
        return flatten(node.child_by_field_name("type"))
    if node.type not in PATHS:
        return None
    before = node.child_by_field_name("path")
    path = flatten(before) if before else ("",)
    return path and (*path, text_of(node.child_by_field_name("name")))


def used(node, prefix):
    """What a `use` names: (path, alias or None, whether it is a glob)."""
    if node.type == "use_list":
        for child in node.named_children:
            if child.type not in ("block_comment", "line_comment"):
                yield from used(child, prefix)
    elif node.type == "scoped_use_list":
        before = node.child_by_field_name("path")
        yield from used(node.child_by_field_name("list"), prefix + (flatten(before) if before else ("",)))
    elif node.type == "use_as_clause":
        path = without_self(prefix + flatten(node.child_by_field_name("path")))
        yield path, text_of(node.child_by_field_name("alias")), False
    elif node.type == "use_wildcard":
        inner = [child for child in node.named_children if child.type in PATHS | NAMES]
        yield prefix + (flatten(inner[0]) if inner else ()), "*", True
    else:
        yield without_self(prefix + flatten(node)), None, False


def without_self(path):
    return path[:-1] if len(path) > 1 and path[-1] == "self" else path


def leaves(tree):
    """The tokens of a tree, `$crate` as one; literals and comments as a blank."""
    for child in tree.children:
        if child.type in ("token_tree", "token_repetition", "token_tree_pattern"):
            yield from leaves(child)
        elif child.type.endswith(("_literal", "_comment")):
            yield " "
        else:
            yield text_of(child)


def is_name(token):
    return bool(re.fullmatch(r"\$?[A-Za-z_]\w*", token))


def paths_at(tokens, at):
    """The paths that begin at a token, several for `a::{b, c}`, and where the next token is."""
    if tokens[at] == "::":
        path = ("",)
    else:
        path = (tokens[at].replace("$crate", "crate"),)
        at += 1
    while at + 1 < len(tokens) and tokens[at] == "::":
        if is_name(tokens[at + 1]):
            path = (*path, tokens[at + 1])
            at += 2
        elif tokens[at + 1] == "{":
            return group_at(tokens, at + 2, path)
        else:
            return [path], at + 1
    return [path], at + (path == ("",))


def group_at(tokens, at, prefix):
    found = []
    while at < len(tokens) and tokens[at] != "}":
        if is_name(tokens[at]):
            paths, at = paths_at(tokens, at)
            found += [without_self(prefix + path) for path in paths]
        else:
            at += 1
    return found, at + 1
