"""The name by which programs import `reverb.structured_writer`: the same module."""

import sys

from reverb import structured_writer
from reverb.structured_writer import *  # noqa: F403

sys.modules[__name__] = structured_writer
