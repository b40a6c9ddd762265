"""The values that hold in `reverb serve`.

A flag overrides the variable, the variable overrides the file, and the file overrides the default.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from reverb._settings import ARGUMENTS, SETTINGS, ServerOptions, durability_of, shard_of, tls_of, tokens_of
from reverb.cli.config import ServerConfig

_LARGEST_PORT = 65_535


@dataclasses.dataclass
class Settings:
    """The values that hold.

    Attributes:
      path: Path of the file.
      values: Values by the names of settings.
      sources: Where each is from: a flag, a variable, `file` or `default`.
      checkpoint: All arguments for DefaultCheckpointer, those of the file included.
    """

    path: str
    values: dict[str, Any]
    sources: dict[str, str]
    checkpoint: dict[str, Any]

    @classmethod
    def merge(cls, given: Mapping[str, tuple[Any, str]], file: ServerConfig) -> "Settings":
        """Merges flags and variables, each with its source, with the contents of a file."""
        values: dict[str, Any] = {}
        sources = {}
        checkpoint = dict(file.checkpoint)
        for setting in SETTINGS:
            name = setting.name
            if name in given:
                values[name], sources[name] = given[name]
            elif name in file.settings:
                values[name], sources[name] = file.settings[name], "file"
            else:
                values[name], sources[name] = setting.default, "default"
            section, _, argument = setting.key.rpartition(".")
            if section == "checkpoint" and sources[name] != "default":
                checkpoint[argument] = values[name]
        return cls(file.path, values, sources, checkpoint)

    def place(self, key: str) -> str:
        """Where the value of a key is from, for errors: a flag, a variable, or the file and the key."""
        source = next((self.sources[setting.name] for setting in SETTINGS if setting.key == key), "file")
        return f"{self.path}: {key}" if source in ("file", "default") else source

    def of_server(self) -> ServerOptions:
        """The options of the server. The environment is part of the values already.

        Raises:
          ValueError, TypeError: A value is invalid.
        """
        given = {}
        parts = {"tls": tls_of, "tokens": tokens_of, "shard": shard_of, "durability": durability_of}
        made = {argument: of(self.values) for argument, of in parts.items()}
        for argument, setting in ARGUMENTS.items():
            value: Any = made[argument] if argument in made else self.values[setting.name]
            if argument == "http_port":
                value = _http_port(value)
            given[argument] = setting.kind.of_text(setting.flag, value) if isinstance(value, str) else value
        try:
            return ServerOptions.of(given, reads_environment=False).with_audit_log(self.values["audit_log"])
        except ValueError as error:
            # Values of the file were checked one by one, but not whether a host needs `allow_insecure`.
            if "file" not in (self.sources["host"], self.sources["http_host"]):
                raise
            raise ValueError(f"{self.path}: {error}") from None


def _http_port(value: int | str) -> int | str:
    text = str(value)
    if text == "off":
        return text
    if not text.isdecimal() or int(text) > _LARGEST_PORT:
        raise ValueError(f"the HTTP port must be a number from 0 to {_LARGEST_PORT}, or off, got {text!r}")
    return int(text)
