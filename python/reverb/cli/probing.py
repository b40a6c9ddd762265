"""`reverb health`."""

import sys

from reverb import _binding
from reverb.cli import output
from reverb.data.endpoint import Endpoint


def probe(endpoint: Endpoint, service: str, timeout: float) -> None:
    """Prints whether a server serves, in a word, and exits with a status that says it too."""
    is_serving = _binding.health(endpoint, service, timeout)
    print("serving" if is_serving else "not_serving")
    if not is_serving:
        sys.exit(output.FAILED)
