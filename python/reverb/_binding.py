"""The extension's classes. This is the only module that imports `_rust`."""

from reverb._rust import *  # noqa: F403
from reverb._rust import end_log, end_threads
from reverb._shutdown import Stage, at_exit

# The first of all hooks, so that it is called last.
at_exit(Stage.THREADS, end_threads)
at_exit(Stage.LOG, end_log)
