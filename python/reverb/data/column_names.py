"""Names of a table's columns, for files and for display."""

from typing import Any

from reverb.data import nests


def column_names(signature: Any, count: int) -> list[str]:
    """The paths of a table's columns, in order, such as `data/observation/image`.

    Args:
      signature: Nest of specs of the table; None for a table without a signature, whose columns are numbered.
      count: Number of columns, which a signature has as leaves.
    """
    import tree

    numbers = list(range(count)) if signature is None else nests.compile_packer(signature)(list(range(count)))
    names: list[str] = []
    for path, _ in tree.flatten_with_path(numbers):
        name = "/".join(["data", *map(str, path)])
        # Two paths may give the same name if keys contain slashes.
        names.append(name if name not in names else f"{name}#{len(names)}")
    return names
