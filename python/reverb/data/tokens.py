"""Tokens of a server: the file that says whom it lets in. The server reads it."""

from __future__ import annotations

import dataclasses
import os

from reverb.data.paths import as_path

__all__ = ["Tokens"]


@dataclasses.dataclass(frozen=True)
class Tokens:
    """The file of a server's tokens, which has the SHA-256 and the role of each, and not the tokens themselves.

    `reverb token new` makes tokens and the entries of the file. The server reads it again within 5 s after it has
    changed. Each call of a client then needs a token of the file, on every road but within the server's own process.

    Attributes:
      path: Path of the file, in TOML.

    Raises:
      TypeError: The path is neither a str nor an os.PathLike.
      ValueError: The path is empty.
    """

    path: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", as_path("path", self.path))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Tokens:
        """The tokens of a file, which is read when the server starts.

        Args:
          path: Path of the file, in TOML.

        Raises:
          TypeError, ValueError: See the class.
        """
        return cls(as_path("path", path))
