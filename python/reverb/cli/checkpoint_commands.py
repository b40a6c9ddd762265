"""`reverb checkpoint`."""

import os
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as Grid

from reverb import _binding, errors
from reverb.cli import help_text, output
from reverb.cli.arguments import Address, Json, of_client
from reverb.client import Client
from reverb.reverb_types import TableInfo

app = typer.Typer(
    cls=help_text.Group,
    no_args_is_help=True,
    help="Inspect checkpoints of this package and of dm-reverb, and save one.",
)

Path = Annotated[str, typer.Argument(help="Path of a checkpoint, or of a folder of checkpoints.")]
_LOG_COUNTS = ("frames", "bytes", "torn_bytes")
_LIMIT_HELP = "Maximum size of one chunk, in bytes. [default: 256 MiB for checkpoints of dm-reverb, none for others]"


def _summary(path: str, described: tuple[bool, list[tuple[bytes, int | None]]]) -> dict[str, Any]:
    is_ours, tables = described
    writer = "reverb-replay" if is_ours else "dm-reverb"
    return {"path": path, "writer": writer, "tables": [_table(*table) for table in tables]}


def _table(serialized: bytes, items: int | None) -> dict[str, Any]:
    info = TableInfo.from_serialized_proto(serialized)
    limiter = info.rate_limiter_info
    return {
        "name": info.name,
        "items": items,
        "max_size": info.max_size,
        "max_times_sampled": info.max_times_sampled,
        "sampler": output.selector_text(info.sampler_options),
        "remover": output.selector_text(info.remover_options),
        "rate_limiter": {
            "samples_per_insert": limiter.samples_per_insert,
            "min_size_to_sample": limiter.min_size_to_sample,
            "min_diff": limiter.min_diff,
            "max_diff": limiter.max_diff,
            "rule": output.limiter_text(limiter),
        },
        "inserts": limiter.insert_stats.completed,
        "samples": limiter.sample_stats.completed,
        "signature": None if info.signature is None else str(info.signature),
    }


@app.command("list")
def list_command(root: Annotated[str, typer.Argument(help="A folder of checkpoints.")], json: Json = False) -> None:
    """List the checkpoints in a folder, newest first. A server loads the first undamaged one."""
    if not os.path.isdir(root):
        raise ValueError(f"{root} is not a folder")
    entries = []
    for path in map(os.fspath, _binding.checkpoint_list(root)):
        try:
            summary = _summary(path, _binding.checkpoint_summary(path))
            entries.append({**summary, "bytes": _size(path), "error": None})
        except errors.ReverbError as error:
            entries.append({"path": path, "writer": None, "tables": [], "bytes": _size(path), "error": str(error)})
    if json:
        output.print_json(entries)
        return
    grid = Grid()
    # The name is there to be copied, so it is never cut.
    grid.add_column("checkpoint", no_wrap=True)
    for name in ("written by", "size", "tables"):
        grid.add_column(name)
    for entry in entries:
        tables = ", ".join(f"{table['name']} ({_count(table['items'])})" for table in entry["tables"])
        grid.add_row(
            os.path.basename(entry["path"]),
            entry["writer"] or "?",
            output.human_bytes(entry["bytes"]),
            tables if entry["error"] is None else f"damaged: {entry['error']}",
        )
    Console().print(grid if entries else f"no checkpoints in {root}")


@app.command()
def show(path: Path, json: Json = False) -> None:
    """Show the tables of a checkpoint, without reading its items."""
    newest = _checkpoints(path)[0]
    summary = _summary(newest, _binding.checkpoint_summary(newest))
    if json:
        output.print_json({**summary, "bytes": _size(newest)})
        return
    _print(summary)


@app.command()
@of_client
def save(
    address: Address,
    json: Json = False,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="Seconds to wait for the save; by default, as long as it takes.")
    ] = None,
) -> None:
    """Make a server save a checkpoint, and print its path on the server's machine."""
    path = Client(address).checkpoint(timeout=timeout)
    if json:
        output.print_json({"path": path})
    else:
        print(path)


@app.command()
def verify(
    path: Path,
    json: Json = False,
    limit_bytes: Annotated[int | None, typer.Option(help=_LIMIT_HELP)] = None,
) -> None:
    """Read and check checkpoints, and the log after the newest good one. The exit status is 3 if one is damaged."""
    results: list[dict[str, Any]] = []
    for one in _checkpoints(path):
        try:
            summary = _summary(one, _binding.checkpoint_verify(one, limit_bytes))
            is_newest = all(result["error"] is not None for result in results)
            log = _binding.checkpoint_verify_log(one) if is_newest else None
            results.append({**summary, "log": log and dict(zip(_LOG_COUNTS, log, strict=True)), "error": None})
        except errors.DataLossError as error:
            results.append({"path": one, "error": str(error)})
    if json:
        output.print_json(results)
    else:
        for result in results:
            print(f"{result['path']}: " + (result["error"] or _verified(result)))
    if any(result["error"] is not None for result in results):
        sys.exit(output.DAMAGED)


def _verified(result: dict[str, Any]) -> str:
    text = f"good, {sum(table['items'] for table in result['tables'])} items"
    log = result["log"]
    if log is None:
        return text
    torn = f"; a crash has torn {log['torn_bytes']} bytes that no sync covers" if log["torn_bytes"] else ""
    return f"{text}; its log is good, {log['frames']} groups of changes in {output.human_bytes(log['bytes'])}{torn}"


def _checkpoints(path: str) -> list[str]:
    """The path itself if it is a checkpoint, otherwise the checkpoints in the folder, newest first."""
    is_one = os.path.exists(os.path.join(path, "DONE"))
    found = [path] if is_one else list(map(os.fspath, _binding.checkpoint_list(path)))
    if not found:
        raise ValueError(f"no checkpoint in {path}")
    return found


def _size(path: str) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(path))


def _count(items: int | None) -> str:
    return "?" if items is None else f"{items:,}"


def _print(summary: dict[str, Any]) -> None:
    grid = Grid(title=f"{summary['path']} (written by {summary['writer']})")
    for name in ("table", "items", "of", "sampler", "remover", "inserts", "samples", "limiter", "signature"):
        grid.add_column(name)
    for table in summary["tables"]:
        grid.add_row(
            table["name"],
            _count(table["items"]),
            f"{table['max_size']:,}",
            table["sampler"],
            table["remover"],
            f"{table['inserts']:,}",
            f"{table['samples']:,}",
            table["rate_limiter"]["rule"],
            table["signature"] or "",
        )
    Console().print(grid)
