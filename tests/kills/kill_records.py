"""The records of whole runs of the scripts in this folder."""

import json
import time


def write(path, script, counts):
    """Writes what a run of a script has counted."""
    record = {"command": f"python tests/kills/{script}", "date": time.strftime("%Y-%m-%d"), "counts": counts}
    path.write_text(json.dumps(record, indent=1) + "\n")
