"""`reverb serve --check`: says what would be served, without listening and without touching a file."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from reverb import _binding, errors
from reverb._settings import SETTINGS, ServerOptions, Setting, is_loopback
from reverb.cli import output, serving
from reverb.cli.settings import Settings
from reverb.logging.escaping import escaped
from reverb.server import Table


def check(path: str | None, given: Mapping[str, tuple[Any, str]]) -> None:
    """Checks what `reverb serve` checks before it listens, and prints the settings and the tables."""
    described, settings = serving.read(path, given)
    options = settings.of_server()
    checkpointer = serving.checkpointer_of(settings)
    if checkpointer is not None:
        # Made and dropped: only a server opens it.
        checkpointer.internal_checkpointer()
    print(escaped(f"{path} is valid. It would be served like this:"))
    for setting in SETTINGS:
        print(escaped(f"  {setting.name:<16} {_shown(settings, setting)}  ({settings.sources[setting.name]})"))
    for line in [*_notes(options, settings), *map(_of_table, described.tables)]:
        print(escaped(f"  {line}"))


def _shown(settings: Settings, setting: Setting) -> str:
    if settings.sources[setting.name] == "default":
        return setting.default_text
    value = settings.values[setting.name]
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _notes(options: ServerOptions, settings: Settings) -> Iterator[str]:
    if not (is_loopback(options.listen.host) and is_loopback(options.observe.http_host)):
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
