"""Processes that measure. Each runs `worker.py` in its side's interpreter and answers one call at a time."""

import json
import pathlib
import subprocess
import tempfile

WORKER = pathlib.Path(__file__).with_name("worker.py")
PACKAGES = {
    "ours": "reverb",
    "reference": "reverb",
    "cpprb": "cpprb",
    "flashbax": "flashbax",
    "torchrl": "torchrl",
    "torch": "reverb.frameworks.torchrl",
    "tensorflow": "reverb",
    "base": "reverb",
}
DISTRIBUTIONS = {
    "ours": "reverb-replay",
    "reference": "dm-reverb",
    "cpprb": "cpprb",
    "flashbax": "flashbax",
    "torchrl": "torchrl",
    "torch": "reverb-replay",
    "tensorflow": "reverb-replay",
    "base": "reverb-replay",
}
PROBE = """
import importlib.metadata as metadata, json, platform, sys
import {package}
versions = {{"python": platform.python_version()}}
for name in ({distribution!r}, "numpy", "tensorflow", "tensorflow-cpu", "torch", "tensordict", "jax"):
    try:
        versions[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
assert {distribution!r} in versions, "{package} is there, but is not {distribution}"
print(json.dumps(versions))
"""


class Sides:
    """The sides that can run on this machine.

    Args:
      pythons: Path of the interpreter by side; None if there is none.
    """

    def __init__(self, pythons):
        self.pythons = {}
        self.versions = {}
        self.missing = {}
        for side, python in pythons.items():
            if not python:
                self.missing[side] = "not installed"
                continue
            source = PROBE.format(package=PACKAGES[side], distribution=DISTRIBUTIONS[side])
            try:
                done = subprocess.run([python, "-c", source], capture_output=True, text=True, check=False)
            except OSError as error:
                self.missing[side] = str(error)
                continue
            if done.returncode:
                self.missing[side] = (done.stderr.strip().splitlines() or ["its interpreter does not start"])[-1]
            else:
                self.pythons[side] = python
                self.versions[side] = json.loads(done.stdout.splitlines()[-1])

    def __contains__(self, side):
        return side in self.pythons

    def here(self, *wanted):
        """Returns those of the requested sides that can run, in the given order."""
        return [side for side in wanted if side in self]

    def worker(self, side):
        """Starts a new process of a side."""
        return Worker(self.pythons[side], side)


class Worker:
    """One process, and a context manager that ends it.

    Args:
      python: Path of the interpreter.
      side: Name of the module of `sides/` whose functions the process calls.
    """

    def __init__(self, python, side):
        self.side = side
        # The reference logs a lot, which matters only if a worker dies.
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in `end`
        self._process = subprocess.Popen(
            [python, str(WORKER), side], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self.pid = self._process.pid

    def start(self, function, **arguments):
        """Sends a call, whose answer `finish` receives."""
        self._process.stdin.write(json.dumps([function, arguments]) + "\n")
        self._process.stdin.flush()

    def finish(self):
        """Returns the answer to the call that was started.

        Raises:
          RuntimeError: The call failed, or the process has died.
        """
        answer = self._process.stdout.readline()
        if not answer:
            self._log.seek(0)
            raise RuntimeError(f"the worker of {self.side} has gone:\n{self._log.read()[-5000:]}")
        result = json.loads(answer)
        if "error" in result:
            raise RuntimeError(f"{self.side}: {result['error']}")
        return result["value"]

    def call(self, function, **arguments):
        self.start(function, **arguments)
        return self.finish()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        """Kills the process."""
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._log.close()
