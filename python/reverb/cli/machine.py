"""The limits of the machine that the process runs on, and of its control groups: None where the system tells none."""

import dataclasses
import os
import pathlib
import resource

# Where Linux mounts the control groups.
_ROOT = pathlib.Path("/sys/fs/cgroup")


@dataclasses.dataclass(frozen=True)
class Machine:
    """What a process may use.

    Attributes:
      processors: Processors of the machine.
      usable_processors: Processors that the process may run on: all, or fewer by its affinity or the lowest quota of
        its control groups, which may be a fraction.
      memory_bytes: Memory of the machine.
      memory_limit_bytes: Lowest limit of the control groups of the process; None without one.
      open_files: Limit of open files, `ulimit -n`; None for no limit.
      open_files_at_most: Value up to which the process may raise that limit, `ulimit -Hn`; None for no limit.
    """

    processors: int | None
    usable_processors: float | None
    memory_bytes: int | None
    memory_limit_bytes: int | None
    open_files: int | None
    open_files_at_most: int | None

    @classmethod
    def of_this_process(cls) -> "Machine":
        """Reads them."""
        groups = _text(pathlib.Path("/proc/self/cgroup")) or ""
        soft, hard = (
            None if limit == resource.RLIM_INFINITY else limit for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
        )
        memory = _memory()
        return cls(
            processors=os.cpu_count(),
            usable_processors=_usable_processors(groups, _ROOT),
            memory_bytes=memory,
            memory_limit_bytes=memory_limit(groups, _ROOT, memory),
            open_files=soft,
            open_files_at_most=hard,
        )


def memory_limit(groups: str, root: pathlib.Path, memory: int | None) -> int | None:
    """The lowest memory limit of control groups, in bytes.

    Args:
      groups: Text of `/proc/self/cgroup`.
      root: Folder where the groups are mounted.
      memory: Memory of the machine; a limit that is not below it does not limit anything.
    """
    texts = [_text(folder / name) for folder, name in _folders(groups, root, "memory", _MEMORY_FILES)]
    limits = [int(text) for text in texts if text is not None and text.isdecimal()]
    return min((limit for limit in limits if memory is None or limit < memory), default=None)


def processor_quota(groups: str, root: pathlib.Path) -> float | None:
    """The lowest quota of control groups, in processors. Arguments as for `memory_limit`."""
    quotas = []
    for folder, name in _folders(groups, root, "cpu", _QUOTA_FILES):
        # Microseconds of processor time, and of the period for which they are given: in one file, or in two.
        words = (_text(folder / name) or "").split()
        if name == _QUOTA_FILES[1]:
            words += (_text(folder / "cpu.cfs_period_us") or "").split()
        if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


# In version 2 of control groups, and in version 1. Without a limit they have the word `max`, or a number that is huge
# or negative.
_MEMORY_FILES = ("memory.max", "memory.limit_in_bytes")
_QUOTA_FILES = ("cpu.max", "cpu.cfs_quota_us")


def _folders(
    groups: str, root: pathlib.Path, controller: str, names: tuple[str, str]
) -> list[tuple[pathlib.Path, str]]:
    """The folders of the groups and of all groups that contain them, each with the name of the file to read there."""
    folders = []
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base, name = (root / controller, names[1]) if controllers else (root, names[0])
        inner = pathlib.PurePath(path.lstrip("/"))
        folders += [(base / group, name) for group in (inner, *inner.parents)]
    return folders


def _usable_processors(groups: str, root: pathlib.Path) -> float | None:
    # macOS has no affinity.
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = processor_quota(groups, root)
    return allowed if allowed is None or quota is None else min(allowed, quota)


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def _text(path: pathlib.Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
