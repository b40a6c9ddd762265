"""Small source trees for the tests of the checks."""

import textwrap

import python_imports
import rust_imports


def write(top, files):
    """Writes files, given as path and text, below a folder; returns it."""
    for path, text in files.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(textwrap.dedent(text))
    return top


def manifest(name, *dependencies):
    lines = "".join(f'{dependency} = {{ path = "../{dependency}" }}\n' for dependency in dependencies)
    return f'[package]\nname = "{name}"\n[dependencies]\n{lines}'


def crate(top, files, name="one", dependencies=()):
    """Writes a crate; the paths of its files lie below its `src`."""
    sources = {f"crates/{name}/src/{path}": text for path, text in files.items()}
    return write(top, {f"crates/{name}/Cargo.toml": manifest(name, *dependencies), **sources})


def rust_arrows(top):
    """The arrows of a tree, files as paths below `crates`, without `src`; `one` need not be named."""

    def short(file):
        return file.removeprefix("crates/").replace("/src/", "/").removeprefix("one/")

    return {(short(source), short(target)) for source, target, _ in rust_imports.graph_of(top).arrows()}


def package(top, files):
    """Writes modules of `reverb`; the paths lie below `python/reverb`."""
    return write(
        top, {"python/reverb/__init__.py": "", **{f"python/reverb/{path}": text for path, text in files.items()}}
    )


def python_arrows(top):
    """The arrows of a package, files as paths below it."""

    def short(file):
        return file.removeprefix("python/reverb/")

    return {(short(source), short(target)) for source, target, _ in python_imports.graph_of(top).arrows()}
