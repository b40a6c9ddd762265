"""Checkpointers: where a server keeps the state of its tables, and how often. Also known as `reverb.checkpointers`."""

import abc
import math
import operator
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

from reverb import _checks, pybind
from reverb.checkpoint_reader import Checkpoint, CheckpointTable, open

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

# `gs://bucket/folder`, `s3://…`: what would become a local folder of a strange name.
_REMOTE = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:/+")


class CheckpointerBase(abc.ABC):
    """What `Server(checkpointer=)` takes."""

    @abc.abstractmethod
    def internal_checkpointer(self) -> pybind.Checkpointer:
        """The extension's checkpointer. Called once, when a server is made."""


class DefaultCheckpointer(CheckpointerBase):
    """Keeps checkpoints in a folder, each in a folder of its own that is named by the time.

    A server that is made with it first loads the newest good checkpoint there. One that is damaged is named in the log,
    stays, and the next older one is loaded; if none is good, the server raises DataLossError. Definitions of tables
    (selectors, sizes, limiter) come from the checkpoint, and differences are logged. The files are those of dm-reverb,
    whose checkpoints can be loaded, and which can load these.

    `client.checkpoint()` saves. Inserts and samples go on meanwhile; what is saved is the state of all tables at one
    moment. When the new checkpoint is on the disk and was read again, older ones beyond `keep` are removed. Only
    checkpoints that this package wrote, and that are good, count or are removed; other files are never touched. Each
    save, and how far one or a load has come after each ten seconds, is logged to `reverb` as info.

    Nothing is checked or made before a server is.

    Args:
      path: The folder, on a disk of the server's machine. Made when a server is.
      group: As in the reference, each save fails with ValueError unless this is empty.
      fallback_checkpoint_path: A checkpoint, not a folder of them, that is loaded if `path` has none. It is never
        changed.
      keep: How many good checkpoints stay, at least 1.
      interval: Seconds between saves in the background; None: only `client.checkpoint()` saves.
      save_on_stop: Whether a server saves once more when it is stopped, which the end of the program does too.
      load_path: The one checkpoint to be loaded, instead of the newest in `path`.
      tables: Names of the tables to be loaded, or a mapping from their names in the checkpoint to those on the server;
        the others stay empty. None: all, and it is an error if the server lacks one.
      override_definitions: Whether selectors, sizes and limiters stay as the server's tables define them. Items beyond
        a smaller `max_size` go as the remover chooses.
      compression: zlib's level, 0 to 9. 0, the default, stores: the data of chunks is compressed in any case.
    """

    def __init__(
        self,
        path: Path,
        group: str = "",
        fallback_checkpoint_path: Path | None = None,
        *,
        keep: int = 1,
        interval: float | None = None,
        save_on_stop: bool = False,
        load_path: Path | None = None,
        tables: Iterable[str] | Mapping[str, str] | None = None,
        override_definitions: bool = False,
        compression: int = 0,
    ) -> None:
        self.path = path
        self.group = group
        self.fallback_checkpoint_path = fallback_checkpoint_path
        self.keep = keep
        self.interval = interval
        self.save_on_stop = save_on_stop
        self.load_path = load_path
        self.tables = tables
        self.override_definitions = override_definitions
        self.compression = compression

    def internal_checkpointer(self) -> pybind.Checkpointer:
        """The extension's checkpointer.

        Raises:
          TypeError: An argument has the wrong type.
          ValueError: A path is empty or on another machine, or a number is out of its range.
        """
        if not isinstance(self.group, str):
            _checks.refuse("group", "a str", self.group)
        level = operator.index(self.compression)
        if level not in range(10):
            raise ValueError(f"`compression` must be between 0 and 9, got {level}.")
        return pybind.Checkpointer(
            _as_path("path", self.path),
            self.group,
            _as_optional_path("fallback_checkpoint_path", self.fallback_checkpoint_path),
            _checks.as_count("keep", self.keep),
            level,
            _as_interval(self.interval),
            bool(self.save_on_stop),
            self._is_temporary,
            _as_optional_path("load_path", self.load_path),
            _as_pairs(self.tables),
            bool(self.override_definitions),
        )

    _is_temporary = False

    def __repr__(self) -> str:
        return f"TFRecordCheckpointer(root_dir={os.fspath(self.path)}, group={self.group})"


class TempDirCheckpointer(DefaultCheckpointer):
    """Keeps checkpoints in a new temporary folder, which goes when the server stops if nothing was saved in it."""

    def __init__(self) -> None:
        super().__init__(tempfile.mkdtemp(prefix="reverb-checkpoints-"))

    _is_temporary = True


def default_checkpointer(group: str | None = None) -> CheckpointerBase:
    """What a server keeps checkpoints with unless it is told.

    Args:
      group: Ignored, as in the reference.
    """
    return TempDirCheckpointer()


def _as_path(name: str, path: object) -> str:
    if not isinstance(path, (str, os.PathLike)):
        _checks.refuse(name, "a str or PathLike", path)
    text = os.fspath(path)
    if not isinstance(text, str):
        _checks.refuse(name, "a str or PathLike", path)
    if not text:
        raise ValueError(f"`{name}` must not be empty.")
    if _REMOTE.match(text):
        raise ValueError(
            f"`{name}`, {text!r}, is not on this machine. Checkpoints are kept in folders of the server's own file "
            f"system; mount the remote storage, or copy what is saved there."
        )
    # The working directory may change while the server runs.
    return os.path.abspath(text)


def _as_optional_path(name: str, path: object) -> str | None:
    return None if path is None else _as_path(name, path)


def _as_interval(interval: object) -> float | None:
    if interval is None:
        return None
    seconds = _checks.as_float("interval", interval)
    if not seconds > 0 or math.isinf(seconds):
        raise ValueError(f"`interval` must be seconds above 0, or None, got {interval!r}.")
    return seconds


def _as_pairs(tables: Any) -> list[tuple[str, str]] | None:
    if tables is None:
        return None
    if isinstance(tables, str):
        _checks.refuse("tables", "names of tables", tables)
    pairs = list(tables.items()) if isinstance(tables, Mapping) else [(name, name) for name in tables]
    targets = [target for _, target in pairs]
    repeated = [name for name in dict.fromkeys(targets) if targets.count(name) > 1]
    if repeated:
        raise ValueError(f"`tables` loads more than one table into {', '.join(map(repr, repeated))}.")
    return pairs
