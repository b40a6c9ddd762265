"""The version of the installed package."""

from importlib import metadata

__all__ = ["version"]


def version() -> str:
    """Returns the version; `unknown` if the package lies on the path without having been installed."""
    try:
        return metadata.version("reverb-replay")
    except metadata.PackageNotFoundError:
        return "unknown"
