"""An older version of our side."""

from sides.ours_operations import *  # noqa: F403 - a worker looks its calls up here
