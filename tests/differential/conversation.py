"""A process of either side that stays, and does one piece of a program after another."""

import json
import pathlib
import subprocess
import tempfile

from both_sides import environment_of, python_of

DRIVER = pathlib.Path(__file__).with_name("conversation_driver.py")


class Conversation:
    """One process, and a context manager that ends it.

    Args:
      side: Name of the side, one of SIDES.
    """

    def __init__(self, side):
        self.side = side
        # Each side logs a lot, which matters only if something fails.
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in `__exit__`
        self._process = subprocess.Popen(
            [python_of(side), str(DRIVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment_of(side),
        )
        # Whether a piece was begun and not answered, as when its test ran out of time.
        self.is_stuck = False

    def run(self, statements, expression="None"):
        """Runs statements, and returns the value of an expression. Names stay for the pieces that follow."""
        self.is_stuck = True
        self._process.stdin.write(json.dumps([statements, expression]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": "the process has ended"}
        self.is_stuck = not line
        if "error" in answer:
            self._log.seek(0)
            raise AssertionError(f"{self.side}: {answer['error']}\n{self._log.read()[-3000:]}")
        return answer["value"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._log.close()
