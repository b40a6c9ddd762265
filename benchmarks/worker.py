"""Runs in a side's interpreter: reads calls, one per line, and writes answers. Started by `workers.py`."""

import importlib
import json
import os
import sys
import traceback


def main():
    # The output of libraries must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    side = importlib.import_module(f"sides.{sys.argv[1]}_side")
    for line in sys.stdin:
        function, arguments = json.loads(line)
        try:
            answer = {"value": getattr(side, function)(**arguments)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
