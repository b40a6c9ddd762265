"""Writes the pages of the API reference: one for each public module, with an entry for each public name.

What is public is what the package says: the table `_NAMES` of a module whose names are lazy, `__all__` of the others.
Both are read from the sources, so nothing that a module imports need be installed.
"""

import ast

# Modules that `reverb` does not name itself, and what they are to users.
FURTHER = ("logging",)
INTRODUCTION = """\
# Reference

The names of `import reverb`, and of its modules. Each page has the signatures with their types, the shapes of arrays,
and the errors that calls raise. The names of the command `reverb` are in its `--help`.

"""


def assigned(path, name):
    """The literal that a module assigns to a name, or None."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
            try:
                return ast.literal_eval(node.value)
            except ValueError:
                return None
    return None


def source(package, module):
    """The file of a module, whose name is relative to the package."""
    path = package.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def modules(package):
    """The public modules, by their first name, with the other names they have."""
    found = {}
    for name, place in sorted(assigned(package / "__init__.py", "_NAMES").items()):
        if ":" not in place:
            found.setdefault(place, []).append(name)
    return found | {name: [name] for name in FURTHER}


def objects(package, module):
    """The public names of a module, each with the path of what it means."""
    path = source(package, module)
    lazy = assigned(path, "_NAMES")
    if lazy is not None:
        return {name: f"reverb.{module}.{place}.{name}" for name, place in lazy.items()}
    names = assigned(path, "__all__") or []
    inner = path.parent if path.stem == "__init__" else None
    is_module = [name for name in names if inner and ((inner / name).is_dir() or (inner / f"{name}.py").is_file())]
    return {name: None if name in is_module else f"reverb.{module}.{name}" for name in names}


def write(sources, folder):
    """Writes the pages into a folder, and `index.md`, which lists all names."""
    package = sources / "reverb"
    folder.mkdir(parents=True)
    (folder / "index.md").write_text(INTRODUCTION + names_of_the_package(package) + table(package))
    for module, names in modules(package).items():
        also = " and ".join(f"`reverb.{name}`" for name in names if name != module)
        text = [f"# reverb.{module}\n\n", f"Also called {also}.\n\n" if also else ""]
        text.append(entry(f"reverb.{module}", members=False, heading=False))
        for name, place in objects(package, module).items():
            text.append(entry(place) if place else f"## `{name}`\n\nA module of dm-reverb's layout.\n\n")
        (folder / f"{module}.md").write_text("".join(text))


def entry(path, *, members=True, heading=True):
    """What mkdocstrings replaces by the documentation of an object."""
    lines = [f"::: {path}", "    options:", "      heading_level: 2"]
    lines += [] if members else ["      members: false"]
    lines += [] if heading else ["      show_root_heading: false", "      show_root_toc_entry: false"]
    return "\n".join(lines) + "\n\n"


def names_of_the_package(package):
    """The table of what `import reverb` gives directly, other than modules."""
    rows = ["| name | module |\n|---|---|\n"]
    for name, place in assigned(package / "__init__.py", "_NAMES").items():
        module, _, attribute = place.partition(":")
        if attribute:
            # A name whose module is not public has its entry here.
            link = f"[`reverb.{module}`]({module}.md)" if module in modules(package) else "below"
            rows.append(f"| `reverb.{name}` | {link} |\n")
    entries = [
        entry(f"reverb.{place.replace(':', '.')}")
        for place in assigned(package / "__init__.py", "_NAMES").values()
        if ":" in place and place.partition(":")[0] not in modules(package)
    ]
    return "".join(rows) + "\n" + "".join(entries)


def table(package):
    """The table of the public modules with their names."""
    rows = ["## Modules\n\n| module | names |\n|---|---|\n"]
    for module in modules(package):
        names = ", ".join(f"`{name}`" for name in objects(package, module))
        rows.append(f"| [`reverb.{module}`]({module}.md) | {names} |\n")
    return "".join(rows)
