"""`reverb serve --check`: says what would be served, without listening and without touching a file."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from reverb import _binding, _listening, errors
from reverb.cli import output, serving
from reverb.cli.settings import Settings
from reverb.logging.escaping import escaped
from reverb.server import Table

# What the server does where nothing is set.
_DEFAULTS = {
    "port": "a free port",
    "host": "127.0.0.1",
    "allow_insecure": "no",
    "heartbeat": "15.0",
    "checkpoint_path": "a temporary folder, removed at the end",
    "interval": "saves only when a client asks",
    "save_on_stop": "no",
    "keep": "1",
    "http_port": "a free port",
    "http_host": "127.0.0.1",
    "http_allowed_hosts": "none beside the names of this machine",
}


def check(path: str | None, given: Mapping[str, tuple[Any, str]]) -> None:
    """Checks what `reverb serve` checks before it listens, and prints the settings and the tables."""
    described, settings = serving.read(path, given)
    values = settings.values
    _listening.as_port(values["port"])
    http = _listening.checked_http(
        serving.http_port(values["http_port"]),
        values["http_host"],
        serving.http_allowed_hosts(values["http_allowed_hosts"]),
        values["metrics_per_table"] == "on",
        values["allow_insecure"],
    )
    _listening.checked_heartbeat(values["heartbeat"])
    hosts = [_listening.checked_host(values["host"], values["allow_insecure"]), None if http is None else http[0]]
    checkpointer = serving.checkpointer_of(settings)
    if checkpointer is not None:
        # Made and dropped: only a server opens it.
        checkpointer.internal_checkpointer()
    print(escaped(f"{path} is valid. It would be served like this:"))
    for name in values:
        print(escaped(f"  {name:<16} {_shown(settings, name)}  ({settings.sources[name]})"))
    for line in [*_notes(hosts, settings), *map(_of_table, described.tables)]:
        print(escaped(f"  {line}"))


def _shown(settings: Settings, name: str) -> str:
    value = settings.values[name]
    if value is None:
        return _DEFAULTS[name]
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _notes(hosts: list[str | None], settings: Settings) -> Iterator[str]:
    if any(host is not None and not _listening.is_loopback(host) for host in hosts):
        yield "Whoever can reach the host can read and write the tables: there is no password and no encryption."
    else:
        yield "Every user of this machine can connect, and nobody from elsewhere."
    if settings.checkpoint:
        yield _checkpoint_note(settings.checkpoint)


def _checkpoint_note(options: Mapping[str, Any]) -> str:
    path = os.path.abspath(options["path"])
    if options.get("load_path"):
        return f"It would load the checkpoint {options['load_path']}."
    if not os.path.isdir(path):
        return f"There is no folder {path} yet: it would be made, and the tables would be empty."
    found = list(map(os.fspath, _binding.checkpoint_list(path)))
    for newest in found:
        try:
            _binding.checkpoint_summary(newest)
        except errors.ReverbError as error:
            return f"{newest} is damaged: {error}"
        return f"It would load the newest checkpoint, {newest}, whose definitions of tables replace those of the file."
    return f"There is no checkpoint in {path}: the tables would be empty."


def _of_table(table: Table) -> str:
    info = table.info
    limiter = info.rate_limiter_info
    limit = "" if not info.max_times_sampled else f", sampled at most {info.max_times_sampled} times each"
    return (
        f"table {table.name}: {output.selector_text(info.sampler_options)}, "
        f"{output.selector_text(info.remover_options)}, at most {info.max_size:,} items{limit}; "
        f"{limiter.samples_per_insert:g} samples per insert, from {limiter.min_size_to_sample:,} items, "
        f"diff from {limiter.min_diff:g} to {limiter.max_diff:g}"
    )
