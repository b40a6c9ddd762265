"""`reverb export` and `reverb import`."""

import os

from reverb import exchange
from reverb.cli import output
from reverb.client import Client
from reverb.data.endpoint import Endpoint
from reverb.platform.default import checkpointers


def export(source: str | Endpoint, table: str, path: str, as_json: bool) -> None:
    """Writes a table of a server or of a checkpoint to a file."""
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        raise ValueError(f"{path} cannot be written: there is no folder {folder}")
    if isinstance(source, Endpoint):
        items = exchange.to_parquet(Client(source), path, table)
    else:
        opened = checkpointers.open(source, tables=[table], limit_bytes=2**32).table(table)
        items = exchange.to_parquet(opened, path)
    _done("exported", items, path, as_json)


def load(path: str, endpoint: Endpoint, table: str, priority: float | None, as_json: bool, timeout: float) -> None:
    """Inserts the items of a file into a server's table. The timeout, in seconds, is that for reaching the server."""
    if not os.path.isfile(path):
        raise ValueError(f"{path} is not a file")
    client = Client(endpoint)
    client.server_info(timeout)
    items = exchange.from_parquet(client, path, table, priority=priority)
    _done("imported", items, path, as_json)


def _done(word: str, items: int, path: str, as_json: bool) -> None:
    if as_json:
        output.print_json({"items": items, "path": path})
    else:
        print(f"{word} {items:,} items: {path} ({output.human_bytes(os.path.getsize(path))})")
