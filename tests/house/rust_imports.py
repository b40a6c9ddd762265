"""Which Rust file names what is defined in which other: the graph of the crates below `crates/`.

An arrow stands for a name, wherever it is written, and ends at the file that defines it, whatever re-exports lie
between. `pub use` is an arrow as well. `mod name;` is none, and methods cannot be seen.
"""

import dataclasses

import rust_syntax
from arrows import Graph
from manifests import crates_of


@dataclasses.dataclass(frozen=True)
class Item:
    """What a path led to in the tree: the file that defines it, and its path there."""

    file: str
    name: str
    kinds: frozenset = frozenset({"type", "value", "macro"})


@dataclasses.dataclass(frozen=True)
class Outside:
    """What a path led to outside of the tree."""

    path: tuple


class Crates:
    """All modules of all crates of a tree, and where the paths in them lead."""

    def __init__(self, top):
        self.top = top
        self.roots = {}
        self.modules = []
        for crate in crates_of(top):
            for name in ("lib.rs", "main.rs"):
                file = crate.folder / "src" / name
                if file.exists():
                    root = self._file(file, (crate.import_name,), None, file.parent)
                    self.roots.setdefault(crate.import_name, root)

    def _file(self, file, path, parent, folder):
        """The module of a file and those below it; its children's files lie in `folder`."""
        module = rust_syntax.read(file.read_text(), file.relative_to(self.top).as_posix(), path, parent)
        self._children(module, folder, file.parent)
        return module

    def _children(self, module, folder, beside):
        self.modules.append(module)
        for children in list(module.children.values()):
            for child in children:
                self._children(child, folder / child.path[-1], folder / child.path[-1])
        for name, (written, shows_macros) in module.elsewhere.items():
            places = [beside / written] if written else [folder / f"{name}.rs", folder / name / "mod.rs"]
            for place in places:
                if place.exists():
                    below = place.parent if written or place.name == "mod.rs" else folder / name
                    child = self._file(place, (*module.path, name), module, below)
                    child.shows_macros = shows_macros
                    module.children.setdefault(name, []).append(child)

    def resolve(self, module, path, seen=frozenset()):
        """What a path written in a module may mean: modules, items, or names outside. Several where kinds share it."""
        first, rest = path[0], path[1:]
        if first == "Self":
            return set()
        if first == "":
            found = self._crate(rest[0]) if rest else set()
            rest = rest[1:]
        elif first == "crate":
            found = {module.root()}
        elif first == "self":
            found = {module}
        elif first == "super":
            found = {module.parent} if module.parent else set()
        else:
            found = self.look_up(module, first, seen) or self._crate(first)
        for segment in rest:
            found = set().union(*(self._step(target, segment, seen) for target in found))
        return found

    def _crate(self, name):
        return {self.roots[name]} if name in self.roots else {Outside((name,))}

    def _step(self, target, segment, seen):
        if isinstance(target, Outside):
            return {Outside((*target.path, segment))}
        if isinstance(target, Item):
            # A variant, or a function of a type.
            return {target} if "type" in target.kinds else set()
        if segment == "super":
            return {target.parent} if target.parent else set()
        # What a macro or a build script wrote is nowhere to be seen, but the module must define it.
        name = "::".join((*target.path, segment))
        return self.look_up(target, segment, seen) or {Item(target.file, name)}

    def look_up(self, module, name, seen=frozenset()):
        """What a bare name means in a module; empty if the module does not know it."""
        if (id(module), name) in seen:
            return set()
        seen = seen | {(id(module), name)}
        found = set(module.children.get(name, ()))
        if name in module.items:
            found.add(Item(module.file, "::".join((*module.path, name)), frozenset(module.items[name])))
        for use in module.uses:
            if use.name == name and not use.is_glob:
                found |= self.resolve(module, use.path, seen)
        if module.parent is None:
            found |= {Item(*macro) for macro in self.exported_macros(module) if macro[1].endswith(f"::{name}")}
        if not found:
            for use in module.uses:
                if use.is_glob:
                    found |= self._through_glob(module, use, name, seen)
        return found

    def _through_glob(self, module, use, name, seen):
        found = set()
        for target in self.resolve(module, use.path, seen):
            if isinstance(target, rust_syntax.Module):
                found |= self.look_up(target, name, seen)
        return found

    def exported_macros(self, root):
        for module in self.modules:
            if module.path[0] == root.path[0]:
                for name in module.exported_macros:
                    yield module.file, "::".join((*module.path, name))

    def macro(self, module, name):
        """What a macro called by a bare name means: an import, or one that textual order shows."""
        while module:
            found = {item for item in self.look_up(module, name) if isinstance(item, Item) and "macro" in item.kinds}
            for children in module.children.values():
                for child in children:
                    if child.shows_macros and name in child.items:
                        found |= self.look_up(child, name)
            if found:
                return found
            module = module.parent
        return set()


def graph_of(top):
    """The arrows between all files of all crates."""
    crates, graph = Crates(top), Graph()
    for module in crates.modules:
        graph.add_file(module.file)
        for use in module.uses:
            if use.is_glob:
                _add_glob(crates, graph, module, use)
            else:
                _add(graph, module, crates.resolve(module, use.path), names_modules=use.is_public)
        for path in module.paths:
            _add(graph, module, crates.resolve(module, path))
        for call in module.calls:
            _add(graph, module, crates.macro(module, call))
    return graph


def _add(graph, module, targets, *, names_modules=False):
    """Arrows to what a path led to. To name a module is none by itself, but to hand it on is."""
    for target in targets:
        if isinstance(target, Outside):
            graph.outside[module.file].add("::".join(target.path))
        elif isinstance(target, Item):
            graph.add(module.file, target.file, target.name)
        elif names_modules:
            graph.add(module.file, target.file, "::".join(target.path))


def _add_glob(crates, graph, module, use):
    """Arrows to those names of a glob that the module uses, or to all where it hands them on."""
    for target in crates.resolve(module, use.path):
        if not isinstance(target, rust_syntax.Module):
            _add(graph, module, {target})
            continue
        names = {*target.items, *target.children, *(other.name for other in target.uses if not other.is_glob)}
        for name in names if use.is_public else names & module.words:
            _add(graph, module, crates.look_up(target, name), names_modules=use.is_public)
        for other in target.uses:
            if other.is_glob and other is not use:
                for word in module.words:
                    _add(graph, module, crates._through_glob(target, other, word, frozenset()))
