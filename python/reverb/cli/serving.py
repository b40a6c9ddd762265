"""`reverb serve`."""

import logging
import signal
import sys
from collections.abc import Mapping
from typing import Any

from reverb import errors
from reverb._shutdown import ExitOnSigterm
from reverb.cli import config, output, restoring
from reverb.cli.notifying import NotifyingServer, notify
from reverb.cli.settings import Settings
from reverb.logging import JsonFormatter, TextFormatter
from reverb.logging.escaping import escaped
from reverb.server import Server

_logger = logging.getLogger("reverb")


def serve(path: str | None, given: Mapping[str, tuple[Any, str]]) -> None:
    """Serves the tables that a file describes.

    Args:
      path: TOML or textproto file that describes the tables.
      given: Values of flags and of environment variables by their names, each with its source. They override the file.
    """
    described, settings = read(path, given)
    log_format = settings.values["log_format"]
    _log_to_stderr(log_format, settings.values["log_level"])
    checkpointer = restoring.checkpointer_of(settings)
    restoring.plan(described.tables, settings, checkpointer)
    # Also while the checkpoint is loaded. The process then ends, so the handler stays.
    ExitOnSigterm().begin()
    try:
        server = NotifyingServer.of(described.tables, settings.of_server(), checkpointer)
    except errors.UnavailableError as error:
        # Here it means that the port is in use, not that a server cannot be reached.
        output.fail(error, output.FAILED)
    # A last save that fails is then a line with a time and a level, like all others.
    output.report_to(_logger.error)
    returns = bool(settings.values["returns"])
    # Before anyone can know that it serves: by default, SIGHUP ends a process.
    _reload_on_sighup(server)
    try:
        _announce(server, [table.name for table in described.tables], is_json=log_format == "json")
        notify("READY=1")
        server.wait(returns=returns)
    finally:
        server.stop(returns=returns)


def _reload_on_sighup(server: Server) -> None:
    """Makes SIGHUP read certificates and tokens again at once, unless it is ignored, as by `nohup`."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, lambda _number, _frame: server.reload())


def read(path: str | None, given: Mapping[str, tuple[Any, str]]) -> tuple[config.ServerConfig, Settings]:
    """Reads the file, and merges it with flags and variables."""
    if path is None:
        output.fail("serve needs a file that describes the tables; see `reverb serve --help`", output.WRONG_USAGE)
    described = config.read(path)
    return described, Settings.merge(given, described)


def _log_to_stderr(log_format: str, level: str) -> None:
    handler = logging.StreamHandler()
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
        # So that each line parses.
        logging.captureWarnings(True)
        output.report_to(_logger.error)
    else:
        handler.setFormatter(TextFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _announce(server: Server, tables: list[str], is_json: bool) -> None:
    if is_json:
        fields = {
            "host": server.host,
            "port": server.port,
            "dashboard_url": server.dashboard_url,
            "tables": tables,
            "restored_from": server.restored_from,
        }
        _logger.info("serving at %s port %s", server.host, server.port, extra={"fields": fields})
        return
    names = ", ".join(tables)
    restored = f", restored from {server.restored_from}" if server.restored_from else ""
    # The server itself has told where its page is.
    line = f"reverb: {server.host} port {server.port}, tables: {names}{restored}"
    print(escaped(line), file=sys.stderr, flush=True)
