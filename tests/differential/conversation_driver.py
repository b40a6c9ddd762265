"""Runs pieces of programs in whichever interpreter runs this file, and answers with what they give.

Each line of the input is a JSON list of statements and of the expression that is the answer, both as Python's text.
"""

import json
import os
import sys
import traceback


def main():
    # The logs of either side must not mix with the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    names = {}
    for line in sys.stdin:
        statements, expression = json.loads(line)
        try:
            exec(statements, names)
            answer = {"value": eval(expression, names)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        out.write(json.dumps(answer) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
