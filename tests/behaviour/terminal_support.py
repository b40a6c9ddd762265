"""A program in a terminal of its own, whose size, keys and output a test controls."""

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

from behaviour_support import PATIENCE_S

CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """Runs a command in a new terminal. A context manager that kills it on exit.

    Args:
      command: The command and its arguments.
      width: Columns of the terminal.
      height: Lines of the terminal.
      **environment: Variables besides those of the tests.
    """

    def __init__(self, command, width=120, height=40, **environment):
        self._master, self._slave = pty.openpty()
        self.resize(width, height)
        self.modes_before = termios.tcgetattr(self._slave)
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            command,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={**inherited, "TERM": "xterm-256color", **environment},
            preexec_fn=self._take_terminal,
        )
        self.seen = ""
        # A read may end within a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def _take_terminal(self):
        os.setsid()
        fcntl.ioctl(self._slave, termios.TIOCSCTTY, 0)

    def resize(self, width, height):
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    @property
    def modes(self):
        """How the terminal treats input now."""
        return termios.tcgetattr(self._slave)

    def press(self, keys):
        os.write(self._master, keys.encode())

    def read(self):
        """Reads what the program has written since the last call."""
        new = ""
        while select.select([self._master], [], [], 0.05)[0]:
            new += self._decoder.decode(os.read(self._master, 1 << 16))
        self.seen += new
        return new

    def screens(self):
        """The screens that were drawn so far, each as text. The last one may not be complete."""
        return [CONTROLS.sub("", screen).replace("\r", "") for screen in self.seen.split("\x1b[H")[1:]]

    def wait_for(self, condition):
        """Reads until a complete screen meets a condition, and returns it."""
        begun = len(self.screens())
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            self.read()
            for screen in self.screens()[max(0, begun - 1) :]:
                if condition(screen):
                    return screen
        raise AssertionError(f"never came; last seen:\n{self.screens()[-1] if self.screens() else self.seen}")

    def end(self):
        """The exit status of the program, once it has ended."""
        end = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < end:
            self.read()
        self.read()
        assert self.process.poll() is not None, "still running"
        return self.process.returncode

    def check_restored(self):
        """Checks that the terminal is as before: its input, its screen and its cursor."""
        assert self.modes == self.modes_before
        for begin, end in (("\x1b[?1049h", "\x1b[?1049l"), ("\x1b[?25l", "\x1b[?25h")):
            assert self.seen.count(begin) >= 1
            assert self.seen.rfind(end) > self.seen.rfind(begin)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        for file in (self._master, self._slave):
            with contextlib.suppress(OSError):
                os.close(file)
