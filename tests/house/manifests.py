"""The crates of a tree and what their manifests say."""

import dataclasses
import pathlib

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib


@dataclasses.dataclass(frozen=True)
class Crate:
    """A crate below `crates/`."""

    name: str
    folder: pathlib.Path
    import_name: str
    # Names of the crates that it is built from, in or outside of the tree; what only its tests need is not among them.
    dependencies: frozenset


def crates_of(top):
    """All crates of a tree, by name."""
    return [_crate(manifest) for manifest in sorted(top.glob("crates/*/Cargo.toml"))]


def _crate(manifest):
    text = tomllib.loads(manifest.read_text())
    name = text["package"]["name"]
    tables = [text, *text.get("target", {}).values()]
    dependencies = {
        dependency.get("package", key) if isinstance(dependency, dict) else key
        for table in tables
        for kind in ("dependencies", "build-dependencies")
        for key, dependency in table.get(kind, {}).items()
    }
    import_name = text.get("lib", {}).get("name", name).replace("-", "_")
    return Crate(name, manifest.parent, import_name, frozenset(dependencies))
