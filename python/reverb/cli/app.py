"""The commands and their options."""

import enum
import inspect
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from reverb import _binding, errors
from reverb._settings import ADDRESS, CONFIG, SETTINGS, Setting
from reverb.cli import checkpoint_commands, help_text, output, table_commands, token_commands
from reverb.cli.arguments import Address, Json, TableName, Timeout, of_client
from reverb.data.endpoint import Endpoint
from reverb.platform.version import version

app = typer.Typer(
    name="reverb",
    cls=help_text.Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # The tables of rich cut flags and variables where they are long.
    rich_markup_mode=None,
    help="Experience replay as a service.\n\n"
    "Exit status: 0 success, 1 failure, 2 wrong usage, 3 damaged checkpoint, 4 server not reachable, 130 Ctrl-C.",
)
app.add_typer(checkpoint_commands.app, name="checkpoint")
app.add_typer(table_commands.app, name="table")
app.add_typer(token_commands.app, name="token")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"reverb {version()}")
        raise typer.Exit()


@app.callback()
def main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Experience replay as a service."""


def _with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command a flag for each setting, in place of its `**settings`."""
    flags = [
        inspect.Parameter(
            setting.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                setting.kind.flag | None,
                typer.Option(
                    *setting.flags, envvar=setting.variable, help=_help_of(setting), metavar=setting.kind.metavar
                ),
            ],
        )
        for setting in SETTINGS
    ]
    signature = inspect.signature(command)
    *own, check, _settings = signature.parameters.values()
    parameters = [*own, *flags, check]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__doc__ = help_text.with_code(command.__doc__ or "")
    return command


def _help_of(setting: Setting) -> str:
    # Of the others, the description says what holds by default.
    is_choice = isinstance(setting.kind.flag, enum.EnumMeta) and setting.default is not None
    return f"{setting.help} [default: {setting.default}]" if is_choice else setting.help


@app.command()
@_with_flags
def serve(
    context: typer.Context,
    config: Annotated[
        str | None,
        typer.Argument(envvar=CONFIG, help="TOML file (name ends in `.toml`), or a textproto file.", metavar="FILE"),
    ] = None,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Check the file, print what would be served, and exit.")
    ] = False,
    **settings: Any,
) -> None:
    """Serve tables until Ctrl-C.

    A TOML file has one section per table. These are all keys:

        port = 8000
        # host = "0.0.0.0"
        # allow_insecure = true
        # max_message_size = 268_435_456
        # max_shared_bytes = 1_073_741_824    # with clients of this host
        # heartbeat = 15.0
        # returns = false       # clients do not wait after Ctrl-C or SIGTERM

        [tables.replay]
        sampler = "uniform"     # fifo, lifo, uniform, min_heap, max_heap
        # sampler = { prioritized = 0.6 }
        remover = "fifo"
        max_size = 1_000_000
        # max_bytes = 20_000_000_000
        # max_times_sampled = 1
        # seed = 1
        # stall_after = 1800    # seconds; pauses up to this are no stall
        rate_limiter.min_size = 1000
        # rate_limiter.samples_per_insert = 4.0
        # rate_limiter.error_buffer = 400.0
        # rate_limiter.min_diff = -400.0    # with max_diff, instead
        # rate_limiter.max_diff = 400.0
        signature = { obs = "float32[4]", reward = "float32" }

        [tables.windows]
        queue = 100             # Table.queue of this size; or stack = 100
        [tables.windows.signature]
        reward = "float32[?]"   # items of several steps, of any number
        obs = { image = "uint8[?, 84, 84]", vector = "float32[?, 4]" }

        [checkpoint]
        path = "/data/checkpoints"
        interval = 600.0
        save_on_stop = true
        # keep = 2
        # compression = 1       # zlib, 0 to 9
        # load_path = "/data/old/2026-01-31T12:00:00+00:00"
        # fallback_checkpoint_path = "/data/first/2026-01-01T12:00:00+00:00"
        # tables = ["replay"]   # loads these alone; or { old = "new" }
        # override_definitions = true

        [durability]            # beside a [checkpoint]
        mode = "process"        # or "power"
        # sync_interval = 1.0
        # max_log_bytes = 4_294_967_296
        # accept_loss = true    # for one start

        [http]
        port = 8080             # or "off"
        # host = "0.0.0.0"
        # allowed_hosts = "replay.example, monitoring.example"

        [tls]                   # clients use grpcs://
        cert = "/etc/reverb/server.pem"
        key = "/etc/reverb/server.key"
        # client_ca = "/etc/reverb/ca.pem"
        # client_role = "view"  # what its certificates allow, without tokens

        [auth]
        tokens_file = "/etc/reverb/tokens.toml"     # of `reverb token new`
        # unix_peers = [1001]   # users of containers, at the Unix socket
        # audit_log = "/var/log/reverb/audit.jsonl"

        [shard]                 # of a cluster; id also by REVERB_SHARD_ID
        id = 0
        cluster = "replay"

        [metrics]
        per_table = "off"       # the sum of all tables

        [log]
        format = "json"
        level = "info"

    Beside a checkpoint, the file decides on the limits of tables: `--check` shows both. docs/operate.md has the rules.

    Each flag has an environment variable: `--http-port` is REVERB_HTTP_PORT. A flag overrides the variable, and the
    variable overrides the file.

    A textproto file has the format of `reverb_server --config`.
    """
    from reverb.cli import checking, serving

    run_it = checking.check if check else serving.serve
    given = {}
    for setting in SETTINGS:
        value = settings[setting.name]
        if value is not None:
            source = context.get_parameter_source(setting.name)
            is_flag = source is not None and source.name == "COMMANDLINE"
            value = value.value if isinstance(value, enum.Enum) else value
            given[setting.name] = value, setting.flag if is_flag else setting.variable
    run_it(config, given)


@app.command()
@of_client
def info(
    address: Address,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Redraw until Ctrl-C.")] = False,
    stat: Annotated[bool, typer.Option("--stat", help="Print a line of sums per update until Ctrl-C.")] = False,
    table: Annotated[str | None, typer.Option(help="With --stat, this table only.")] = None,
    interval: Annotated[float, typer.Option(help="Seconds between updates, with --watch or --stat.")] = 1.0,
    json: Json = False,
    timeout: Timeout = 10.0,
) -> None:
    """Show a server's tables: items, inserts, samples, and the calls that are waiting.

    With `--watch`, also show inserts and samples per second. With `--watch --json`, print one line per update.

    With `--stat`, print one line per update: items, bytes, clients, waiting calls, inserts, samples and connections. In
    brackets is what was added since the line before.
    """
    if stat and watch:
        output.fail("--stat and --watch exclude each other", output.WRONG_USAGE)
    if table is not None and not stat:
        output.fail("--table goes with --stat", output.WRONG_USAGE)
    if not interval > 0:
        output.fail(f"--interval must be greater than 0, got {interval}", output.WRONG_USAGE)
    from reverb.cli import server_info, stat_lines

    if stat:
        stat_lines.run(address, table, interval, json, timeout)
    else:
        server_info.show(address, watch, interval, json, timeout)


@app.command()
@of_client
def top(address: Address, timeout: Timeout = 10.0) -> None:
    """Watch a server: tables, rates, rate limiters, the busiest clients, and the calls that have waited longest.

    Of a cluster, show the sums of each table, its shards one by one, and which shards are missing.

    Keys: `q` quits, `s` sorts the tables, `c` and `w` hide or show clients and waits, `p` pauses. In a pipe, print one
    screen as text.
    """
    from reverb.cli import top as screen

    screen.show(address, timeout)


@app.command()
@of_client
def health(
    address: Address,
    service: Annotated[str, typer.Option(help="A gRPC service, such as `reverb.replay.v1.Replay`; else all.")] = "",
    timeout: Timeout = 5.0,
) -> None:
    """Ask a server whether it serves (`grpc.health.v1`), for probes of containers.

    Prints `serving` with exit status 0, or `not_serving` with exit status 1. Without a server, the status is 4.
    """
    is_serving = _binding.health(address, service, timeout)
    print("serving" if is_serving else "not_serving")
    if not is_serving:
        sys.exit(output.FAILED)


@app.command()
@of_client
def doctor(
    # Not of the environment, of which no value is printed.
    address: Annotated[
        Endpoint | None, typer.Argument(metavar="ADDRESS", help="Address of a server to ask, too.")
    ] = None,
    json: Json = False,
    timeout: Timeout = 5.0,
) -> None:
    """Print what a bug report needs: versions, system, limits of the machine, and the road to a server and its tables.

    It has the names of the `REVERB_` variables that are set, and no values of any. It has no host names and no paths,
    but the names of tables, and the address if the server cannot be asked: look it over before you post it.
    """
    from reverb.cli import doctor as facts

    facts.show(address, json, timeout)


@app.command()
@of_client
def bench(
    address: Address,
    size: Annotated[
        list[str] | None,
        typer.Option(help="Bytes of an item, such as 400, 4k or 1m; may be repeated. [default: 400, 4k, 64k, 1m]"),
    ] = None,
    clients: Annotated[int, typer.Option(min=1, max=256, help="Number of client processes at the same time.")] = 1,
    seconds: Annotated[float, typer.Option(help="Seconds for each measurement.")] = 2.0,
    json: Json = False,
    timeout: Timeout = 10.0,
) -> None:
    """Measure what a server and the road to it carry: inserts, samples, bytes and latencies.

    Uses a table of its own, of at most 256 MiB, which the server removes at the end; it touches no other table. The
    server's other clients share its processors with the measurement.
    """
    from reverb.cli import bench as benching

    benching.run(address, size or [], clients, seconds, json, timeout)


@app.command()
@of_client
def peek(
    source: Annotated[
        str | Endpoint,
        typer.Argument(envvar=ADDRESS, help="Address of a server, `host:port`, or a checkpoint's folder."),
    ],
    table: TableName,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="Number of items to show.")] = 3,
    newest: Annotated[bool, typer.Option("--newest", help="Show the items inserted last, not first.")] = False,
    json: Json = False,
    timeout: Timeout = 10.0,
) -> None:
    """Show items of a table without drawing them. They do not count as sampled."""
    from reverb.cli import peeking

    peeking.show(source, table, count, newest, json, timeout)


@app.command("export")
@of_client
def export_command(
    source: Annotated[
        str | Endpoint,
        typer.Argument(envvar=ADDRESS, help="A server on this machine, `host:port`, or a checkpoint."),
    ],
    table: TableName,
    file: Annotated[str, typer.Argument(help="Parquet file to write; an existing file is replaced.")],
    json: Json = False,
) -> None:
    """Write all items of a table to a Parquet file. A server saves a checkpoint first. Needs the extra `arrow`."""
    from reverb.cli import exchanging

    exchanging.export(source, table, file, json)


@app.command("import")
@of_client
def import_command(
    file: Annotated[str, typer.Argument(help="Parquet file written by `reverb export`.")],
    address: Address,
    table: TableName,
    priority: Annotated[float | None, typer.Option(help="Priority of all items, instead of their own.")] = None,
    json: Json = False,
    timeout: Timeout = 10.0,
) -> None:
    """Insert the items of a Parquet file into a table, in order. Needs the extra `arrow`."""
    from reverb.cli import exchanging

    exchanging.load(file, address, table, priority, json, timeout)


def run() -> None:
    """Runs the command, and converts errors into a message and an exit status."""
    try:
        app()
    except errors.DataLossError as error:
        output.fail(error, output.DAMAGED)
    except (errors.UnavailableError, errors.ServerStoppedError, errors.DeadlineExceededError) as error:
        output.fail(error, output.NO_SERVER)
    except (errors.ReverbError, ValueError, TypeError, NotImplementedError, ImportError, OSError) as error:
        output.fail(error, output.FAILED)
    except KeyboardInterrupt:
        sys.exit(130)
