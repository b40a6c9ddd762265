"""`reverb peek`."""

import datetime
from collections.abc import Iterator
from typing import Any

import numpy as np

from reverb import _binding
from reverb.cli import output
from reverb.data.column_names import column_names
from reverb.data.endpoint import Endpoint
from reverb.reverb_types import SpecNest, TableInfo, table_infos

# Maximum number of elements of an array that are printed.
_SHOWN = 8


def show(source: str | Endpoint, table: str, count: int, newest: bool, as_json: bool, timeout: float) -> None:
    """Prints items of a table of a server or of a checkpoint."""
    if isinstance(source, Endpoint):
        items = _of_server(source, table, count, newest, timeout)
    else:
        items = _of_checkpoint(source, table, count, newest)
    for item in items:
        if as_json:
            output.print_json(item)
        else:
            _print(item)


def _of_server(endpoint: Endpoint, table: str, count: int, newest: bool, timeout: float) -> Iterator[dict[str, Any]]:
    client = _binding.Client(endpoint)
    items = client.peek(table, count, newest, timeout)
    signature = table_infos(client, timeout)[table].signature
    for item in items:
        yield _describe(item, signature)


def _of_checkpoint(path: str, table: str, count: int, newest: bool) -> Iterator[dict[str, Any]]:
    reader = _binding.CheckpointReader(path, [table], 2**32)
    [info] = map(TableInfo.from_serialized_proto, reader.infos())
    size = info.current_size
    positions = range(size - 1, max(-1, size - 1 - count), -1) if newest else range(min(count, size))
    for position in positions:
        read = reader.batch(table, position, 1, False)
        if read is not None:
            yield _describe(read, info.signature)


def _describe(item: _binding.SampledBatch, signature: SpecNest | None) -> dict[str, Any]:
    """A batch of one item, to be printed."""
    assert item.inserted_at is not None
    time = datetime.datetime.fromtimestamp(int(item.inserted_at[0]) / 1e9, datetime.timezone.utc)
    return {
        "key": item.info.key[0].item(),
        "priority": item.info.priority[0].item(),
        "times_sampled": item.info.times_sampled[0].item(),
        "inserted_at": time.isoformat(),
        "columns": [
            _column(name, np.asarray(column[0]))
            for name, column in zip(column_names(signature, len(item.columns)), item.columns, strict=True)
        ],
    }


def _column(name: str, array: Any) -> dict[str, Any]:
    dtype = "string" if array.dtype == object else array.dtype.name
    return {"name": name, "dtype": dtype, "shape": list(array.shape), "values": array.ravel()[:_SHOWN].tolist()}


def _print(item: dict[str, Any]) -> None:
    print(
        f"{item['key']:>20}  priority {item['priority']:g}, sampled {item['times_sampled']} times, "
        f"inserted {item['inserted_at']}"
    )
    for column in item["columns"]:
        more = " …" if np.prod(column["shape"], dtype=int) > _SHOWN else ""
        print(f"    {column['name']}: {column['dtype']}{column['shape']}  {column['values']}{more}")
