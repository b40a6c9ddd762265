"""Which Python module names which other: the graph of `python/reverb`.

An arrow stands for an import, wherever it is written: at the top, in a function, for type checkers only, or by a
literal name given to `importlib.import_module` or looked up in `sys.modules`. It ends at the module that is named. If
that module only hands the name on, another arrow ends at the module that defines it. A package that only hands a name
on gets no arrow. `reverb/__init__.py` hands on names of the whole package and is not a source of arrows.
"""

import ast

from arrows import Graph

PACKAGE = "reverb"


class Modules:
    """All modules of the package below a folder, and where imports lead."""

    def __init__(self, top):
        self.folder = top / "python" / PACKAGE
        self.files, self.trees = {}, {}
        for path in sorted(self.folder.rglob("*.py")):
            parts = (PACKAGE, *path.relative_to(self.folder).with_suffix("").parts)
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.files[name] = path.relative_to(top).as_posix()
            self.trees[name] = ast.parse(path.read_text())
        stubs = (path for path in self.folder.rglob("*.pyi") if not path.with_suffix(".py").exists())
        self.extensions = {".".join((PACKAGE, *path.relative_to(self.folder).with_suffix("").parts)) for path in stubs}

    def is_package(self, module):
        return self.files[module].endswith("/__init__.py")

    def imports(self, module):
        """What a module imports: (module, name in it or None, name it gets here or None)."""
        for node in ast.walk(self.trees[module]):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.name, None, alias.asname or alias.name
            elif isinstance(node, ast.ImportFrom):
                source = self._absolute(module, node.module, node.level)
                yield from ((source, alias.name, alias.asname or alias.name) for alias in node.names)
            elif isinstance(node, ast.Call | ast.Subscript):
                name = literal_module(node)
                if name and name.startswith("."):
                    level = len(name) - len(name.lstrip("."))
                    name = self._absolute(module, name.lstrip("."), level)
                if name:
                    yield name, None, None

    def _absolute(self, module, name, level):
        if not level:
            return name
        parts = module.split(".")
        package = parts[: len(parts) - level + self.is_package(module)]
        return ".".join([*package, *([name] if name else [])])

    def attributes(self, module):
        """Dotted names below the package that are written out: `reverb.client.Client` after `import reverb`."""
        bound = {name.partition(".")[0] for _, what, name in self.imports(module) if what is None and name}
        if PACKAGE not in bound:
            return
        nodes = [node for node in ast.walk(self.trees[module]) if isinstance(node, ast.Attribute)]
        inner = {node.value for node in nodes}
        for node in nodes:
            dotted = dotted_name(node)
            if dotted and dotted.startswith(f"{PACKAGE}.") and node not in inner:
                yield dotted

    def targets(self, module, name, seen=()):
        """Modules that `from module import name` leads to, with what is named there."""
        whole = f"{module}.{name}"
        if whole in self.files or whole in self.extensions:
            return {(whole, name)}
        if module not in self.files:
            return {(module, name)}
        if (module, name) in seen:
            return set()
        found = set()
        if name == "*":
            found = set().union(*(self.targets(source, what) for source, what, _ in self.imports(module) if what))
        elif name not in defined(self.trees[module]):
            for source, what, alias in self.imports(module):
                if source.split(".")[0] != PACKAGE or what is None:
                    continue
                if alias == name:
                    found |= self.targets(source, what, (*seen, (module, name)))
                elif what == "*" and name in self.names(source):
                    found |= self.targets(source, name, (*seen, (module, name)))
        return found | (set() if found and self.is_package(module) else {(module, name)})

    def names(self, module):
        """The names that a module has for others."""
        if module not in self.files:
            return set()
        return defined(self.trees[module]) | {alias for _, what, alias in self.imports(module) if what and alias}

    def along(self, dotted):
        """Where a dotted name leads: the longest module that it begins with, and then a name in it."""
        parts = dotted.split(".")
        for end in range(len(parts), 0, -1):
            module = ".".join(parts[:end])
            if module in self.files:
                return self.targets(module, parts[end]) if end < len(parts) else {(module, parts[-1])}
        return {(dotted, parts[-1])}


def literal_module(node):
    """The module that a call imports by a literal name, or that an expression looks up in `sys.modules`."""
    if isinstance(node, ast.Subscript):
        argument = node.slice if dotted_name(node.value) == "sys.modules" else None
    else:
        called = (dotted_name(node.func) or "").split(".")
        is_import = called[-1] in ("import_module", "__import__") or called[:2] == ["sys", "modules"]
        argument = node.args[0] if node.args and is_import else None
    return argument.value if isinstance(argument, ast.Constant) and isinstance(argument.value, str) else None


def dotted_name(node):
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else None


def defined(tree):
    """Names that a module makes itself at its top level, also below `if` and `try`."""
    found, waiting = set(), list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.For):
            waiting += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
            waiting += [child for handler in getattr(node, "handlers", ()) for child in handler.body]
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            found |= {child.id for child in ast.walk(node) if isinstance(child, ast.Name) and is_stored(child)}
    return found


def is_stored(name):
    return isinstance(name.ctx, ast.Store)


def graph_of(top):
    """The arrows between all modules of the package; what it imports from elsewhere is `outside`."""
    modules, graph = Modules(top), Graph()
    for module, file in modules.files.items():
        graph.add_file(file)
        if module == PACKAGE:
            continue
        for source, name, _ in modules.imports(module):
            if source.split(".")[0] != PACKAGE:
                graph.outside[file].add(f"{source}.{name}" if name else source)
            elif name is not None:
                _add(graph, modules, file, modules.targets(source, name), {source, f"{source}.{name}"})
            elif source != PACKAGE:
                _add(graph, modules, file, modules.along(source), {source})
        for dotted in modules.attributes(module):
            _add(graph, modules, file, modules.along(dotted), {dotted})
    return graph


def _add(graph, modules, file, targets, written):
    """Arrows to what an import led to. The extension is named only by who writes its name, not through others."""
    for target, name in targets:
        if target in modules.files:
            graph.add(file, modules.files[target], name)
        elif target in written:
            graph.outside[file].add(target)
