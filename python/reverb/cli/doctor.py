"""`reverb doctor`: what a bug report has to say of the package, the machine and a server.

Reports are public: nothing here is the value of an environment variable, a host name, a path, or of an item.
"""

import dataclasses
import json
import platform
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from reverb import _binding, errors
from reverb._settings import variables_set, without_values
from reverb.cli import output
from reverb.cli.machine import Machine
from reverb.cli.server_info import Look
from reverb.data.endpoint import Endpoint
from reverb.logging.escaping import escaped
from reverb.platform.version import version
from reverb.reverb_types import table_infos

# Distributions that decide how this one behaves: what it needs, the extras, what brings data, and what it replaces.
PACKAGES = (
    *("dm-tree", "ml_dtypes", "numpy", "protobuf"),
    *("pyarrow", "rich", "tomli", "typer", "jax", "minari", "pillow", "tensorflow", "tensordict", "torch"),
    *("cryptography", "ray"),
    *("dm-env", "gymnasium", "torchrl"),
    "dm-reverb",
)
# What a server says of itself, less what names its machine.
_OF_SERVER = ("version", "state", "connections", "resident_bytes", "cpu_seconds")
_OF_TABLE = ("name", "size", "max_size", "bytes", "inserts", "samples", "sampler", "remover", "waits")


def show(endpoint: Endpoint | None, as_json: bool, timeout: float) -> None:
    """Prints the facts.

    Args:
      endpoint: Server to ask; None asks none.
      as_json: Whether to print JSON.
      timeout: Seconds to wait for the server.

    Raises:
      ReverbError: The server could not be asked. All other facts are printed, and this error with them.
    """
    facts: dict[str, Any] = {
        "reverb": version(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": platform.platform(),
        "processor": platform.machine(),
        "packages": dict(_installed()),
        "machine": dataclasses.asdict(Machine.of_this_process()),
        "variables": variables_set(),
        "server": None,
    }
    failure = None
    if endpoint is not None:
        try:
            facts["server"] = _asked(endpoint, timeout)
        except errors.ReverbError as error:
            # It may name a file that a variable names.
            failure = type(error)(without_values(str(error)))
            facts["server"] = {"error": str(failure)}
    if as_json:
        output.print_json(facts)
    else:
        for head, text in _lines(facts):
            print(f"{head:<12}{escaped(text)}")
    if failure is not None:
        raise failure from None


def _installed() -> Iterator[tuple[str, str]]:
    for name in PACKAGES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue


def _asked(endpoint: Endpoint, timeout: float) -> dict[str, Any]:
    client = _binding.Client(endpoint)
    tables = [Look(info).as_json() for info in table_infos(client, timeout).values()]
    try:
        document = json.loads(client.observe(timeout))["server"]
    except (errors.UnimplementedError, errors.InvalidArgumentError):
        # One of dm-reverb, or several servers.
        document = {}
    return {
        "road": client.road,
        **{name: document.get(name) for name in _OF_SERVER},
        "uptime_seconds": document["now"] - document["started_at"] if document else None,
        "tables": [{name: table[name] for name in _OF_TABLE} for table in tables],
    }


def _lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The facts as text: heads, and what stands beside them."""
    machine = Machine(**facts["machine"])
    yield "reverb", facts["reverb"]
    yield "python", facts["python"]
    yield "system", f"{facts['system']}, {facts['processor']}"
    yield "packages", ", ".join(f"{name} {number}" for name, number in facts["packages"].items())
    yield "processors", f"{_number(machine.usable_processors)} of {_number(machine.processors)}"
    memory = "unknown" if machine.memory_bytes is None else output.human_bytes(machine.memory_bytes)
    limit = machine.memory_limit_bytes
    yield "memory", f"{memory}, " + ("no lower limit" if limit is None else f"limit {output.human_bytes(limit)}")
    most = "at most" if machine.open_files_at_most is not None else "with"
    yield "open files", f"{_limit(machine.open_files)}, {most} {_limit(machine.open_files_at_most)}"
    # Their values may be secret.
    yield "variables", ", ".join(facts["variables"]) or "none of REVERB_* is set"
    yield from _server_lines(facts["server"])


def _server_lines(server: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    if server is None:
        yield "server", "not asked: name its address"
        return
    if "error" in server:
        yield "server", f"not reached: {server['error']}"
        return
    yield "road", server["road"]
    if server["version"] is None:
        yield "server", "it tells no version: one of dm-reverb, or several servers"
    else:
        yield (
            "server",
            f"{server['version']}, {server['state']} for {server['uptime_seconds']:.0f} s, "
            f"{server['connections']} connections",
        )
    for table in server["tables"]:
        size = "" if table["bytes"] is None else f", {output.human_bytes(table['bytes'])}"
        yield (
            "table",
            f"{table['name']}: {table['size']} of {table['max_size']} items{size}, {table['inserts']} inserts, "
            f"{table['samples']} samples, {table['sampler']} and {table['remover']}",
        )
        for reason in table["waits"]:
            yield "", f"waits: {reason}"


def _number(count: float | None) -> str:
    return "unknown" if count is None else f"{count:g}"


def _limit(count: int | None) -> str:
    return "no limit" if count is None else str(count)
