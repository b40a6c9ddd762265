"""`reverb serve --check`: says what would be served, without listening and without touching a file."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from reverb._settings import SETTINGS, ServerOptions, Setting, is_loopback
from reverb.cli import output, restoring, serving
from reverb.cli.restoring import FileCheckpointer, Restored
from reverb.cli.settings import Settings
from reverb.logging.escaping import escaped
from reverb.server import Table


def check(path: str | None, given: Mapping[str, tuple[Any, str]]) -> None:
    """Checks what `reverb serve` checks before it listens, and prints the settings and the tables."""
    described, settings = serving.read(path, given)
    options = settings.of_server()
    checkpointer = restoring.checkpointer_of(settings)
    restored = restoring.plan(described.tables, settings, checkpointer)
    print(escaped(f"{path} is valid. It would be served like this:"))
    for setting in SETTINGS:
        print(escaped(f"  {setting.name:<16} {_shown(settings, setting)}  ({settings.sources[setting.name]})"))
    print(escaped(f"  {_reach(options)}"))
    if checkpointer is not None:
        for line in _checkpoint_notes(restored, checkpointer):
            print(escaped(f"  {line}"))
    for table in described.tables:
        for line in _of_table(table, restored):
            print(escaped(f"  {line}"))


def _shown(settings: Settings, setting: Setting) -> str:
    if settings.sources[setting.name] == "default":
        return setting.default_text
    value = settings.values[setting.name]
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _reach(options: ServerOptions) -> str:
    """Who can connect."""
    security = options.security
    is_local = is_loopback(options.listen.host) and is_loopback(options.observe.http_host)
    encryption = "" if is_local or security.tls else " They travel without encryption."
    if security.tokens is not None:
        return f"Clients need tokens of {security.tokens.path}.{encryption}"
    if is_local:
        return "Every user of this machine can connect, and nobody from elsewhere."
    tls = security.tls
    if tls is not None and tls.client_ca is not None and is_loopback(options.observe.http_host):
        return f"Clients need certificates of {tls.client_ca}, and may do what role {tls.client_role} may."
    lacking = "no password and no encryption" if tls is None else "no password"
    return f"Whoever can reach the host can read and write the tables: there is {lacking}."


def _checkpoint_notes(restored: Restored, checkpointer: FileCheckpointer) -> Iterator[str]:
    path = os.path.abspath(checkpointer.path)
    for damage in restored.damaged:
        yield f"It would pass over a damaged checkpoint, {damage}"
    if restored.path is None:
        if os.path.isdir(path):
            yield f"There is no checkpoint in {path}: the tables would be empty."
        else:
            yield f"There is no folder {path} yet: it would be made, and the tables would be empty."
        fallback = checkpointer.fallback_checkpoint_path
        if fallback is not None:
            yield f"There is no checkpoint at fallback_checkpoint_path, {os.fspath(fallback)}, either."
    else:
        newest = "newest " if os.path.dirname(restored.path) == path and checkpointer.load_path is None else ""
        yield f"It would load the {newest}checkpoint, {restored.path} (`reverb checkpoint verify` reads its items)."
    if restored.log is not None:
        groups, size = restored.log
        yield f"It would replay the log after it, {groups:,} groups of changes in {output.human_bytes(size)}."
    if restored.lost is not None:
        yield f"It would set the log aside, and lose what is in it: {restored.lost}"
    for name in restored.left_out:
        yield f"It would not load table {name} of that checkpoint, and the next checkpoint would be without it."


def _of_table(table: Table, restored: Restored) -> Iterator[str]:
    """What would be served: as the file describes it, or beside what the checkpoint has."""
    if table.name not in restored.tables:
        yield f"{_described(table)}{'' if restored.path is None else '; not in the checkpoint, so empty'}"
        return
    items, options = restored.tables[table.name]
    yield f"table {table.name}, {'?' if items is None else format(items, ',')} items in the checkpoint:"
    rows = [("option", "file", "checkpoint", "served")]
    # A signature is long, and seldom differs.
    rows += [
        (option.name, option.in_file, option.in_checkpoint, option.served)
        for option in options
        if option.name != "signature" or option.in_file != option.in_checkpoint
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _described(table: Table) -> str:
    info = table.info
    limit = "" if not info.max_times_sampled else f", sampled at most {info.max_times_sampled} times each"
    return (
        f"table {table.name}: {output.selector_text(info.sampler_options)}, "
        f"{output.selector_text(info.remover_options)}, at most {info.max_size:,} items{limit}; "
        f"{output.limiter_text(info.rate_limiter_info)}"
    )
