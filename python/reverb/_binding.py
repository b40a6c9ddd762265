"""The extension's classes. This is the only module that imports `_rust`."""

from reverb._rust import *  # noqa: F403
