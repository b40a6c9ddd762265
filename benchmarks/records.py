"""The record of a script that measures on its own, in the form of those of `run.py`."""

import json
import platform
import sys
import time

import machine

import reverb


def write(path, area, results, is_quick, described=None, others=None, **versions):
    """Writes a record.

    Args:
      path: The file; None writes nothing.
      area: Name of what was measured.
      results: The rows.
      is_quick: Whether the run was shorter than that of a record that is kept.
      described: The machine as it was before, from `machine.describe`; None describes it now.
      others: Versions of the packages of other sides, by the sides' names.
      versions: Versions of further packages of this side, by their names.
    """
    if path is None:
        return
    record = {
        "command": "python " + " ".join(sys.argv),
        "date": time.strftime("%Y-%m-%dT%H:%M:%S"),
        "quick": is_quick,
        "machine": described or machine.describe(),
        "versions": {
            **(others or {}),
            "ours": {"python": platform.python_version(), "reverb": reverb.__version__, **versions},
        },
        "results": [{"area": area, **result} for result in results],
    }
    path.write_text(json.dumps(record, indent=1) + "\n")
