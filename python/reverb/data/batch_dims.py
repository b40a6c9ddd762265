"""The leading axes that count items in data of many items, of which a TensorDict knows how many it has."""

from __future__ import annotations

import math
from typing import Any

from reverb.data import checks
from reverb.data.arrays import as_array
from reverb.data.leaves import map_leaves
from reverb.replay_sample import Ragged


def as_rows(data: Any, batch_dims: int | None) -> Any:
    """Data whose first axis is that of the items.

    Args:
      data: TensorDict, or nest of arrays.
      batch_dims: Number of leading axes that count items; None means that there is one.

    Returns:
      The data themselves if one axis counts items, else data with these axes merged, without a copy where that can be.

    Raises:
      ValueError: A TensorDict has several batch dimensions and `batch_dims` is None; or the data have fewer axes.
      TypeError: `batch_dims` is not an integer, or a column cannot have several such axes.
    """
    wanted = None if batch_dims is None else checks.as_count("batch_dims", batch_dims)
    # A TensorDict, and a class made of one.
    size = getattr(data, "batch_size", None) if hasattr(data, "batch_dims") else None
    if size is None:
        return data if wanted in (None, 1) else map_leaves(lambda leaf, name: _merged(leaf, wanted, name), data)
    if wanted is None and len(size) > 1:
        raise ValueError(
            f"data: a TensorDict of batch size {list(size)} could be {math.prod(size)} items, or {size[0]} items of "
            f"batch size {list(size[1:])}: say which by batch_dims={len(size)} or batch_dims=1"
        )
    if len(size) < (wanted or 1):
        hint = "; `insert` takes one item" if not size else ""
        raise ValueError(
            f"data: expected a TensorDict with {wanted or 1} batch dimensions, got batch size {list(size)}{hint}"
        )
    return data if wanted in (None, 1) else data.reshape(-1, *size[wanted:])


def _merged(leaf: Any, batch_dims: int, name: str) -> Any:
    if isinstance(leaf, Ragged):
        raise TypeError(f"column {name}: a Ragged has one axis of items, and batch_dims is {batch_dims}")
    array = as_array(leaf)
    if array.ndim < batch_dims:
        raise ValueError(f"column {name}: expected at least {batch_dims} axes, got shape {list(array.shape)}")
    return array.reshape(-1, *array.shape[batch_dims:])
