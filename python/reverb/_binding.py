"""The extension's classes. This is the only module that imports `_rust`."""

from reverb._rust import *  # noqa: F403
from reverb._rust import end_log
from reverb._shutdown import Stage, at_exit

at_exit(Stage.LOG, end_log)
