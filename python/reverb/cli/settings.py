"""The settings of `reverb serve`: each is a flag, an environment variable and a key of the TOML file.

A flag overrides the variable, the variable overrides the file, and the file overrides the default.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from reverb.cli.config import ServerConfig

__all__ = ["KEYS", "Settings"]

# The names of flags, and the keys of the file. The variable of a flag is its name after `REVERB_`.
KEYS = {
    "port": "port",
    "host": "host",
    "allow_insecure": "allow_insecure",
    "heartbeat": "heartbeat",
    "checkpoint_path": "checkpoint.path",
    "interval": "checkpoint.interval",
    "save_on_stop": "checkpoint.save_on_stop",
    "keep": "checkpoint.keep",
    "http_port": "http.port",
    "http_host": "http.host",
    "http_allowed_hosts": "http.allowed_hosts",
    "metrics_per_table": "metrics.per_table",
    "log_format": "log.format",
    "log_level": "log.level",
}
_DEFAULTS = {"metrics_per_table": "on", "log_format": "text", "log_level": "info"}


@dataclasses.dataclass
class Settings:
    """The values that hold.

    Attributes:
      values: Values by the names of flags; None leaves the choice to the server.
      sources: Where each is from: a flag, a variable, `file` or `default`.
      checkpoint: All arguments for DefaultCheckpointer, those of the file included.
    """

    values: dict[str, Any]
    sources: dict[str, str]
    checkpoint: dict[str, Any]

    @classmethod
    def merge(cls, given: Mapping[str, tuple[Any, str]], file: ServerConfig) -> "Settings":
        """Merges flags and variables, each with its source, with the contents of a file. Takes the variables away."""
        values: dict[str, Any] = {}
        sources = {}
        for name, key in KEYS.items():
            in_file = _in_file(file, key)
            if name in given:
                values[name], sources[name] = given[name]
            elif in_file is not None:
                values[name], sources[name] = in_file, "file"
            else:
                values[name], sources[name] = _DEFAULTS.get(name), "default"
        checkpoint = dict(file.checkpoint)
        for name, key in KEYS.items():
            section, _, argument = key.rpartition(".")
            if section == "checkpoint" and values[name] is not None:
                checkpoint[argument] = values[name]
        # The library reads some of these too, where it is given nothing, and must not find what a flag overrides.
        for name in KEYS:
            os.environ.pop(f"REVERB_{name.upper()}", None)
        return cls(values, sources, checkpoint)


def _in_file(file: ServerConfig, key: str) -> Any:
    section, _, name = key.rpartition(".")
    return getattr(file, section).get(name) if section else getattr(file, name)
