"""What `reverb serve` loads before it serves: the tables of its file beside those of a checkpoint."""

import dataclasses
import os
from collections.abc import Sequence

from reverb import errors
from reverb.cli.settings import Settings
from reverb.platform.default.checkpointers import DefaultCheckpointer
from reverb.server import Table

# A table keeps them for life: they decide which items it has.
_FIXED = ("sampler", "remover")


class FileCheckpointer(DefaultCheckpointer):
    """Takes the options of tables that were edited in the file since the checkpoint, and needs a folder to save to."""

    _definitions = "edited"
    _must_be_writable = True


@dataclasses.dataclass(frozen=True)
class TableOption:
    """An option of a table, as texts.

    Attributes:
      name: Name of the option.
      in_file: Value that the file describes.
      in_checkpoint: Value that was saved.
      served: Value that holds.
    """

    name: str
    in_file: str
    in_checkpoint: str
    served: str


@dataclasses.dataclass(frozen=True)
class Restored:
    """What would be loaded.

    Attributes:
      path: Checkpoint that would be loaded; None if there is none.
      damaged: Newer checkpoints that are damaged, each with the damage.
      tables: Number of items and options of each table by its name on the server. A number that is not known without
        reading the items is None.
      left_out: Names of tables of the checkpoint that would not be loaded.
      log: Number of groups of changes and of bytes of the log that would be replayed; None if there is none.
      lost: Why a log would be set aside, as `accept_loss` allows; None if none would be.
    """

    path: str | None
    damaged: list[str]
    tables: dict[str, tuple[int | None, list[TableOption]]]
    left_out: list[str]
    log: tuple[int, int] | None = None
    lost: str | None = None


def checkpointer_of(settings: Settings) -> FileCheckpointer | None:
    """The checkpointer; None leaves it to the server."""
    is_durable = settings.values["durability"] is not None
    if not (settings.checkpoint or is_durable):
        return None
    if "path" not in settings.checkpoint:
        what = "a durability needs" if is_durable else "checkpoints need"
        raise ValueError(f"{what} a path: --checkpoint-path, or `path` in the section [checkpoint]")
    return FileCheckpointer(**settings.checkpoint)


def plan(tables: Sequence[Table], settings: Settings, checkpointer: FileCheckpointer | None) -> Restored:
    """What would be loaded into the tables of the file. Changes nothing, and reads no items of checkpoints.

    Raises:
      ValueError: The folder cannot be written to, there is no checkpoint at `load_path`, or the file and the checkpoint
        contradict each other. The error names the file and the key.
      DataLossError: There are checkpoints, but all of them are damaged; or the log would be refused.
    """
    if checkpointer is None:
        return Restored(None, [], {}, [])
    internal = checkpointer.internal_checkpointer()
    _check_writable(settings, os.path.abspath(checkpointer.path))
    _check_load_path(settings, checkpointer)
    try:
        path, damaged, planned = internal.plan([table.internal_table for table in tables])
    except errors.DataLossError:
        raise
    except errors.ReverbError as error:
        raise ValueError(f"{settings.path}: {error}") from None
    known: dict[str, tuple[int | None, list[TableOption]]] = {}
    left_out = []
    for saved_name, name, items, options in planned:
        if name is None:
            left_out.append(saved_name)
            continue
        if options is None:
            raise ValueError(_of_missing_table(settings, str(path), name, items, [table.name for table in tables]))
        known[name] = items, [TableOption(*option) for option in options]
        for option in known[name][1]:
            if option.name in _FIXED and option.served != option.in_file:
                raise ValueError(_of_fixed_option(settings, str(path), name, option))
    log, lost = None, None
    try:
        counts = internal.plan_log(path, is_durable=settings.values["durability"] is not None)
        log = counts and counts[:2]
    except errors.DataLossError as error:
        if not settings.values["accept_loss"]:
            raise
        lost = str(error)
    return Restored(None if path is None else os.fspath(path), damaged, known, left_out, log, lost)


def _check_writable(settings: Settings, path: str) -> None:
    """Checks it without making the folder. A folder that cannot be written to for another reason ends the start."""
    folder = path
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        place = settings.place("checkpoint.path")
        raise ValueError(f"{place}: {path} cannot be made, because {folder} is not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(
            f"{settings.place('checkpoint.path')}: this user cannot write to {folder}, so no save could succeed. "
            f"To load a checkpoint from there and save elsewhere, name it in `load_path`, and another folder here."
        )


def _check_load_path(settings: Settings, checkpointer: FileCheckpointer) -> None:
    path = checkpointer.load_path
    if path is None or os.path.exists(os.path.join(path, "DONE")):
        return
    what = "is not a checkpoint; it may be a folder of checkpoints" if os.path.isdir(path) else "does not exist"
    raise ValueError(f"{settings.place('checkpoint.load_path')}: {os.fspath(path)} {what}")


def _of_missing_table(settings: Settings, path: str, name: str, items: int | None, tables: list[str]) -> str:
    count = "" if items is None else f" with {items:,} items"
    others = ", ".join(f'"{table}"' for table in tables)
    return (
        f"{settings.path}: there is no section [tables.{name}], but checkpoint {path} has a table {name!r}{count}. "
        f"Describe it, or leave it out: `tables = [{others}]` in the section [checkpoint] loads these alone. The next "
        f"checkpoint is then without it; remove that line again after it, because it also leaves out later tables."
    )


def _of_fixed_option(settings: Settings, path: str, name: str, option: TableOption) -> str:
    return (
        f"{settings.path}: {option.name} of [tables.{name}] is {option.in_file}, but {option.in_checkpoint} in "
        f"checkpoint {path}, and a table keeps it. Write {option.in_checkpoint}, or `override_definitions = true` in "
        f"the section [checkpoint], which gives the items of the checkpoint to tables with all options of the file."
    )
