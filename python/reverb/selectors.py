"""The name by which programs import `reverb.item_selectors`: the same module."""

import sys

from reverb import item_selectors
from reverb.item_selectors import *  # noqa: F403

sys.modules[__name__] = item_selectors
