"""The name by which programs import `reverb.platform.default.checkpointers`: the same module."""

import sys

from reverb.platform.default import checkpointers
from reverb.platform.default.checkpointers import *  # noqa: F403

sys.modules[__name__] = checkpointers
