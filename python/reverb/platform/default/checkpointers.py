"""Checkpointers define where and how often a server saves its tables. Also available as `reverb.checkpointers`."""

import abc
import dataclasses
import math
import operator
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from reverb import _binding
from reverb.checkpoint_reader import Checkpoint, CheckpointTable, open
from reverb.data import checks

__all__ = [
    "Checkpoint",
    "CheckpointTable",
    "CheckpointerBase",
    "DefaultCheckpointer",
    "TempDirCheckpointer",
    "default_checkpointer",
    "open",
]

Path = str | os.PathLike[str]

# Matches `gs://bucket/folder`, `s3://…` and so on, which would otherwise become local folders with strange names.
_REMOTE = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:/+")


class CheckpointerBase(abc.ABC):
    """Base class of the objects that `Server(checkpointer=)` accepts."""

    @abc.abstractmethod
    def internal_checkpointer(self) -> _binding.Checkpointer:
        """Creates the extension's checkpointer. Called once, when a server is created."""


@dataclasses.dataclass(eq=False, repr=False)
class DefaultCheckpointer(CheckpointerBase):
    """Saves checkpoints in a folder, each in a subfolder that is named after the time.

    A server with this checkpointer first loads the newest undamaged checkpoint in the folder. A damaged checkpoint is
    logged and kept, and the next older one is loaded. If all checkpoints are damaged, the server raises DataLossError.
    The definitions of the tables (selectors, sizes, rate limiters) are those in the checkpoint, and differences are
    logged. The file format is that of dm-reverb: either package can load the checkpoints of the other.

    `client.checkpoint()` saves a consistent snapshot of all tables. Inserts and samples continue during the save. Once
    the new checkpoint is on the disk and has been verified, checkpoints in excess of `keep` are removed, oldest first.
    Only undamaged checkpoints of this package are counted and removed; other files are never touched. Each save is
    logged to the logger `reverb` at level INFO, as is the progress of a save or load every ten seconds.

    The arguments are checked, and the folder is created, when a server is created. With `interval` or `save_on_stop`, a
    folder that cannot be written to raises StorageError then. Without them it can be loaded from, and
    `client.checkpoint()` raises StorageError.

    Args:
      path: Folder for the checkpoints, on a disk of the server's machine. It is created together with the server.
      group: Argument of dm-reverb that must be empty, the default; otherwise each save raises ValueError.
      fallback_checkpoint_path: Path of a checkpoint (not of a folder of checkpoints) to load if `path` has none; None
        for no fallback. The checkpoint is never changed.
      keep: Number of undamaged checkpoints to keep, at least 1.
      interval: Time in seconds between automatic saves; None saves only on `client.checkpoint()`.
      save_on_stop: Whether the server saves a last checkpoint when it stops, including at interpreter exit, and on
        SIGTERM while the main thread is in `Server.wait`.
      load_path: Path of the checkpoint to load; None loads the newest one in `path`.
      tables: Names of the tables to load, or a mapping from their names in the checkpoint to their names on the server.
        Other tables start empty. None loads all tables, each of which must exist on the server.
      override_definitions: Whether to keep the selectors, sizes and rate limiters of the server's tables instead of
        those in the checkpoint. The remover selects the items that exceed a smaller `max_size`.
      compression: Level of zlib compression, from 0 to 9. The default, 0, stores without zlib, because the data of
        chunks is always compressed.
    """

    path: Path
    group: str = ""
    fallback_checkpoint_path: Path | None = None
    _: dataclasses.KW_ONLY
    keep: int = 1
    interval: float | None = None
    save_on_stop: bool = False
    load_path: Path | None = None
    tables: Iterable[str] | Mapping[str, str] | None = None
    override_definitions: bool = False
    compression: int = 0

    def internal_checkpointer(self) -> _binding.Checkpointer:
        """Creates the extension's checkpointer.

        Raises:
          TypeError: An argument has the wrong type.
          ValueError: A path is empty or on another machine, or a number is out of range.
        """
        if not isinstance(self.group, str):
            checks.refuse("group", "a str", self.group)
        level = operator.index(self.compression)
        if level not in range(10):
            raise ValueError(f"`compression` must be between 0 and 9, got {level}.")
        return _binding.Checkpointer(
            _as_path("path", self.path),
            self.group,
            _as_optional_path("fallback_checkpoint_path", self.fallback_checkpoint_path),
            checks.as_count("keep", self.keep),
            level,
            _as_interval(self.interval),
            bool(self.save_on_stop),
            self._is_temporary,
            _as_optional_path("load_path", self.load_path),
            _as_pairs(self.tables),
            "here" if self.override_definitions else self._definitions,
            self._must_be_writable or self.interval is not None or bool(self.save_on_stop),
        )

    _is_temporary = False
    _definitions: ClassVar[Literal["saved", "edited"]] = "saved"
    _must_be_writable = False

    def __repr__(self) -> str:
        return f"TFRecordCheckpointer(root_dir={os.fspath(self.path)}, group={self.group})"


class TempDirCheckpointer(DefaultCheckpointer):
    """Saves checkpoints in a new temporary folder, which is removed when the server stops if nothing was saved."""

    def __init__(self) -> None:
        super().__init__(tempfile.mkdtemp(prefix="reverb-checkpoints-"))

    _is_temporary = True


def default_checkpointer(group: str | None = None) -> CheckpointerBase:
    """Creates the checkpointer that a server uses by default.

    Args:
      group: Argument of dm-reverb that is ignored, as there.
    """
    return TempDirCheckpointer()


def _as_path(name: str, path: object) -> str:
    if not isinstance(path, (str, os.PathLike)):
        checks.refuse(name, "a str or PathLike", path)
    text = os.fspath(path)
    if not isinstance(text, str):
        checks.refuse(name, "a str or PathLike", path)
    if not text:
        raise ValueError(f"`{name}` must not be empty.")
    if _REMOTE.match(text):
        raise ValueError(
            f"`{name}`, {text!r}, is not on this machine. Checkpoints must be in a folder of the server's file system; "
            f"mount the remote storage, or copy the checkpoints."
        )
    # The working directory may change while the server runs.
    return os.path.abspath(text)


def _as_optional_path(name: str, path: object) -> str | None:
    return None if path is None else _as_path(name, path)


def _as_interval(interval: object) -> float | None:
    if interval is None:
        return None
    seconds = checks.as_float("interval", interval)
    if not seconds > 0 or math.isinf(seconds):
        raise ValueError(f"`interval` must be a positive number of seconds or None, got {interval!r}.")
    return seconds


def _as_pairs(tables: Any) -> list[tuple[str, str]] | None:
    if tables is None:
        return None
    if isinstance(tables, str):
        checks.refuse("tables", "a sequence or a mapping of table names", tables)
    pairs = list(tables.items()) if isinstance(tables, Mapping) else [(name, name) for name in tables]
    targets = [target for _, target in pairs]
    repeated = [name for name in dict.fromkeys(targets) if targets.count(name) > 1]
    if repeated:
        raise ValueError(f"`tables` loads more than one table into {', '.join(map(repr, repeated))}.")
    return pairs
