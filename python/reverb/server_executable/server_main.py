"""The command `reverb_server` serves the tables described by a text, until it receives a signal.

The exit status is 0 for --help, 1 for an invalid configuration or a port that is in use, 130 after Ctrl-C, and 143
after SIGTERM.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from reverb._settings import options_of_environment
from reverb._shutdown import ExitOnSigterm
from reverb.server import Server
from reverb.server_executable import reverb_config_pb2, server_from_proto

__all__ = ["app_run_main", "main", "parse_config"]

_EXAMPLE = """
example:
  reverb_server --config='
    port: 8000
    tables {
      table_name: "my_table"
      sampler { uniform: true }
      remover { fifo: true }
      max_size: 1000
      rate_limiter {
        samples_per_insert: 1 min_size_to_sample: 100
        min_diff: -1.7976931348623157e+308 max_diff: 1.7976931348623157e+308
      }
    }'

This rate limiter makes samples wait for 100 items, and has no other effect. The selectors are `fifo: true`,
`lifo: true`, `uniform: true`, `prioritized { priority_exponent: 0.6 }`, `heap { min_heap: true }` and `heap {}`.
Checkpoints are saved in a new temporary folder. Only this machine can reach the server, unless REVERB_HOST and
REVERB_ALLOW_INSECURE=1 are set in the environment. REVERB_TLS_CERT and REVERB_TLS_KEY name
files for TLS. For more options (checkpoints, TOML files) see `reverb serve --help`.
"""


def main(unused_argv: Sequence[str] | None = None, *, config: str | None = None) -> None:
    """Serves until Ctrl-C or SIGTERM.

    Args:
      unused_argv: Argument of dm-reverb's function that is ignored.
      config: Text of a `ReverbServerConfig` message; None takes the text from the command line.

    Raises:
      ValueError: The text cannot be parsed, and the error gives the line; or it does not describe any tables.
    """
    returns = None
    if config is None:
        arguments = _arguments(sys.argv[1:])
        config, returns = arguments.config, False if arguments.no_return else None
    parsed = parse_config(config)
    tables = server_from_proto.tables_from_proto(parsed.tables)
    sigterm = ExitOnSigterm()
    try:
        sigterm.begin()
        # If no port is given, the server chooses a free one, which is printed below.
        server = Server.of(tables, options_of_environment({"port": parsed.port or None}))
        names = ", ".join(table.name for table in tables)
        print(f"reverb_server: {server.host} port {server.port}, tables: {names}", file=sys.stderr, flush=True)
        server.wait(returns=returns)
    finally:
        sigterm.end()


def parse_config(text: str) -> Any:
    """Parses the text of a `ReverbServerConfig` message.

    Raises:
      ValueError: The text is invalid. The error gives the line and column.
    """
    from google.protobuf import text_format

    message = reverb_config_pb2.ReverbServerConfig()
    try:
        return text_format.Parse(text, message)
    except text_format.ParseError as error:
        line = error.GetLine()
        lines = text.splitlines()
        shown = f"\n  {lines[line - 1].strip()}" if line and line <= len(lines) else ""
        raise ValueError(f"the configuration cannot be parsed, line:column {error}{shown}") from None


def app_run_main() -> NoReturn:
    """The entry point of the command."""
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except (ValueError, NotImplementedError, TypeError, RuntimeError, OSError) as error:
        print(f"reverb_server: {error}", file=sys.stderr)
        sys.exit(1)
    sys.exit(0)


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="reverb_server",
        description="Serves tables for experience replay.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", "-config", metavar="TEXTPROTO", help="a ReverbServerConfig as text")
    parser.add_argument("--flagfile", "-flagfile", metavar="FILE", help="a file with one flag per line")
    parser.add_argument("--no-return", action="store_true", help="clients do not wait after Ctrl-C or SIGTERM")
    parsed = parser.parse_args(arguments)
    if parsed.flagfile is not None:
        parsed = parser.parse_args([*_read_flags(parsed.flagfile), *arguments])
    if parsed.config is None:
        # The text of dm-reverb, which scripts may look for.
        print(
            "FATAL Flags parsing error: flag --config=None: Flag --config must have a value other than None.\n"
            "Pass --help to see help on flags.",
            file=sys.stderr,
        )
        sys.exit(1)
    return parsed


def _read_flags(path: str) -> list[str]:
    """Reads the flags in a file. Empty lines and lines that start with # or // are skipped; quotes can span lines."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    lines = [line.strip() for line in text.splitlines()]
    flags = [line for line in lines if line and not line.startswith(("#", "//"))]
    return shlex.split("\n".join(flags))


if __name__ == "__main__":
    app_run_main()
