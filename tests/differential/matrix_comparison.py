"""Compares items as they were written with items as they were read. Both have the form of matrix_values.py."""


def differences(expected, items):
    """Describes each difference between items as they were written and as they were read."""
    if len(expected) != len(items):
        return [f"{len(expected)} items written, {len(items)} read"]
    found = []
    for place, (one, other) in enumerate(zip(expected, items, strict=True)):
        infos = {"priority": one["priority"], "probability": 1.0, "times_sampled": 1}
        infos["table_size"] = len(expected) - place
        found += [
            f"item {place}: {name} {other[name]}, not {value}" for name, value in infos.items() if other[name] != value
        ]
        found += [f"item {place}: {text}" for text in different_data(one["columns"], other)]
    if len({one["key"] for one in items}) != len(items):
        found.append("two items have the same key")
    return found


def different_data(columns, item):
    """Describes the differences between columns as written, and the columns, steps, or first step that were read."""
    form = next(name for name in ("columns", "steps", "first") if name in item)
    if form == "columns":
        return different_leaves(columns, item["columns"])
    if form == "first":
        return different_leaves([cut(column, 0) for column in columns], item["first"])
    lengths = {shape[0] for _, shape, _ in columns}
    if lengths != {len(item["steps"])}:
        return [f"{len(item['steps'])} steps, not {lengths}"]
    return [
        f"step {row}: {text}"
        for row, step in enumerate(item["steps"])
        for text in different_leaves([cut(column, row) for column in columns], step)
    ]


def different_leaves(expected, actual):
    if len(expected) != len(actual):
        return [f"{len(expected)} columns, not {len(actual)}"]
    pairs = enumerate(zip(expected, actual, strict=True))
    return [f"column {place}: {shown(two)}, not {shown(one)}" for place, (one, two) in pairs if one != two]


def shown(leaf):
    dtype, shape, content = leaf
    return f"{dtype}{list(shape)} {content[:80]}"


def cut(column, row):
    """Returns a row of a leaf."""
    dtype, (rows, *shape), content = column
    size = len(content) // rows
    return dtype, tuple(shape), content[row * size : (row + 1) * size]
