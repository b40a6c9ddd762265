"""`reverb table`."""

from typing import Annotated, Any

import typer

from reverb.cli import config, help_text, output
from reverb.cli.arguments import Address, Json, TableName, Timeout, of_client
from reverb.client import Client

app = typer.Typer(cls=help_text.Group, no_args_is_help=True, help="Change the tables of a server.")


@app.callback()
def _tables() -> None:
    """Keeps `configure` a command of its own, although it is the only one."""


@app.command()
@of_client
def configure(
    address: Address,
    table: TableName,
    max_size: Annotated[int | None, typer.Option(help="Maximum number of items.")] = None,
    max_bytes: Annotated[float | None, typer.Option(help="Maximum number of bytes; `inf` for no limit.")] = None,
    max_times_sampled: Annotated[
        int | None, typer.Option(help="Draws after which an item leaves; 0 for no limit.")
    ] = None,
    min_size: Annotated[int | None, typer.Option(help="Rate limiter: items before the first draw.")] = None,
    samples_per_insert: Annotated[float | None, typer.Option(help="Rate limiter: ratio.")] = None,
    error_buffer: Annotated[float | None, typer.Option(help="Rate limiter: room on both sides of the ratio.")] = None,
    min_diff: Annotated[
        float | None,
        typer.Option(help="Instead of a buffer: the least that inserts times ratio, less samples, may be."),
    ] = None,
    max_diff: Annotated[float | None, typer.Option(help="Instead of a buffer: the most that it may be.")] = None,
    json: Json = False,
    timeout: Timeout = 60.0,
) -> None:
    """Change options of a table while it is in use. What is not given stays; a rate limiter is replaced as a whole.

    Items leave that no longer fit. The next checkpoint has the new options.
    """
    if max_bytes is not None and max_bytes.is_integer():
        max_bytes = int(max_bytes)
    options = {"max_size": max_size, "max_bytes": max_bytes, "max_times_sampled": max_times_sampled}
    limiter = {
        "min_size": min_size,
        "samples_per_insert": samples_per_insert,
        "error_buffer": error_buffer,
        "min_diff": min_diff,
        "max_diff": max_diff,
    }
    given = {name: value for name, value in limiter.items() if value is not None}
    changes: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if not given and not changes:
        output.fail("give at least one option to change; see --help", output.WRONG_USAGE)
    try:
        rate_limiter = config.limiter(given) if given else None
    except ValueError as error:
        output.fail(error, output.WRONG_USAGE)
    Client(address).configure_table(table, **changes, rate_limiter=rate_limiter, timeout=timeout)
    changed = [*changes, *(["rate_limiter"] if given else [])]
    if json:
        output.print_json({"table": table, "changed": changed})
    else:
        print(f"{table}: changed {', '.join(changed)}")
