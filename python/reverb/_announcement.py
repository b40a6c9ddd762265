"""Tells people where a server's live page is, and where the shards of a cluster are."""

import contextlib
import logging
import sys

_logger = logging.getLogger("reverb")


def announce(url: str | None) -> None:
    """Tells the address of the live page. None says nothing."""
    if url is not None:
        tell(f"Live dashboard: {url}")


def tell(text: str) -> None:
    """Tells a line where a person looks: at a prompt, in a terminal, or in a notebook.

    Elsewhere it is logged, so that programs that read the output of others do not find it there.
    """
    # A server works without a line, whatever the program has put in place of its output.
    with contextlib.suppress(Exception):
        if _is_read_by_a_person():
            print(f"[Reverb] {text}", flush=True)
        else:
            _logger.info("%s", text)


def _is_read_by_a_person() -> bool:
    if sys.stdout.isatty() or _is_notebook():
        return True
    if not hasattr(sys, "ps1"):
        return False
    try:
        sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):
        # A console inside a program with windows. Other output than to a terminal is a pipe or a file.
        return True
    return False


def _is_notebook() -> bool:
    """Whether the program runs in a kernel of IPython."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
