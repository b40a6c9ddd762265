"""A process that does what the tests of the matrix ask, with the `reverb` of its interpreter, as a server or a client.

    python matrix_peer.py < requests > answers

A request is a pickled `(number, task, arguments)`; `task` is one of the functions that the modules list as their
`TASKS`, which gets the process's `Peer` first. Each request runs in a thread of its own, so that tasks may wait for one
another. Its answer is a pickled `(number, outcome)`: `{"value": ...}`, or `{"error": names of its classes, "text": ...,
"trace": ...}`. Only plain Python values are sent, since the two sides have different versions of NumPy.

This file and all that it imports run in the reference's interpreter, and must not need our package.
"""

import importlib
import os
import pickle
import sys
import threading
import traceback

MODULES = ("matrix_serving", "matrix_writing", "matrix_reading", "matrix_calling")


class Peer:
    """The state of the process.

    Attributes:
      reverb: Module under test.
      servers: Servers by the names that the tests give them.
      events: Events by name, for which tasks wait and which other tasks set.
    """

    def __init__(self):
        import reverb

        self.reverb = reverb
        self.servers = {}
        self.events = {}
        self._clients = {}
        self._lock = threading.Lock()

    @property
    def side(self):
        return "ours" if hasattr(self.reverb, "buffers") else "reference"

    @property
    def tf(self):
        """TensorFlow, imported when a task first needs it."""
        import tensorflow as tf

        return tf

    def client(self, address):
        """Returns the client of an address: always the same, as in a program."""
        with self._lock:
            if address not in self._clients:
                self._clients[address] = self.reverb.Client(address)
            return self._clients[address]

    def event(self, name):
        with self._lock:
            return self.events.setdefault(name, threading.Event())


class Answers:
    """Answers requests, each in a thread of its own.

    Args:
      peer: State that the tasks get.
      out: File to write answers to.
    """

    def __init__(self, peer, out):
        self.peer = peer
        self.out = out
        self.lock = threading.Lock()
        modules = [importlib.import_module(name) for name in MODULES]
        self.tasks = {task.__name__: task for module in modules for task in module.TASKS}

    def answer(self, number, task, arguments):
        try:
            outcome = {"value": self.tasks[task](self.peer, **arguments)}
        except Exception as error:
            names = [kind.__name__ for kind in type(error).__mro__]
            outcome = {"error": names, "text": str(error), "trace": traceback.format_exc()}
        with self.lock:
            pickle.dump((number, outcome), self.out)
            self.out.flush()


def main():
    # The logs of either side must not mix with the answers.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    answers = Answers(Peer(), out)
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        threading.Thread(target=answers.answer, args=request, daemon=True).start()
    # Some calls of the reference never end, and so would the end of the interpreter.
    os._exit(0)


if __name__ == "__main__":
    main()
