"""`reverb serve`."""

import logging
import sys
from typing import Any

from reverb import errors
from reverb._shutdown import ExitOnSigterm
from reverb.cli import config, output
from reverb.platform.default.checkpointers import CheckpointerBase, DefaultCheckpointer
from reverb.server import Server


def serve(
    path: str | None,
    port: int | None,
    host: str | None,
    allow_insecure: bool,
    checkpoint: dict[str, Any],
    heartbeat: float | None = None,
) -> None:
    """Serves the tables that a file describes. Arguments that are not None override the file."""
    if path is None:
        output.fail("serve needs a file that describes the tables; see `reverb serve --help`", output.WRONG_USAGE)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    described = config.read(path)
    checkpointer = _checkpointer({**described.checkpoint, **checkpoint})
    # Also while the checkpoint is loaded. The process then ends, so the handler stays.
    ExitOnSigterm().begin()
    try:
        server = Server(
            described.tables,
            described.port if port is None else port,
            checkpointer,
            host=host or described.host,
            allow_insecure=allow_insecure or None,
            heartbeat_interval=described.heartbeat if heartbeat is None else heartbeat,
        )
    except errors.UnavailableError as error:
        # Here it means that the port is in use, not that a server cannot be reached.
        output.fail(error, output.FAILED)
    with server:
        names = ", ".join(table.name for table in described.tables)
        restored = f", restored from {server.restored_from}" if server.restored_from else ""
        print(f"reverb: {server.host} port {server.port}, tables: {names}{restored}", file=sys.stderr, flush=True)
        server.wait()


def _checkpointer(options: dict[str, Any]) -> CheckpointerBase | None:
    if not options:
        return None
    if "path" not in options:
        raise ValueError("checkpoints need a path: --checkpoint-path, or `path` in the section [checkpoint]")
    return DefaultCheckpointer(**options)
