"""The options that all writers have, and adders for their writers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypedDict

from reverb.data import checks
from reverb.data.shown_options import shows_options
from reverb.data.timeouts import as_reconnect_timeout

# Default of `max_pending_bytes`, of a client and of each of its writers.
# limit (Writers): bytes of a writer's unconfirmed items | {} | `create_item` waits | `max_pending_bytes=` of each
# writer
MAX_PENDING_BYTES = 64 << 20


class WriterArguments(TypedDict, total=False):
    """The fields of WriterOptions as arguments, for type checkers. A test compares the two."""

    max_chunk_length: int | None
    compression: str
    delta_encoded: bool
    max_pending_bytes: int
    max_in_flight_items: int | None
    reconnect_timeout: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class WriterOptions:
    """How a writer packs steps into chunks, and how far it runs ahead of its server.

        options = reverb.WriterOptions(compression="zstd", max_in_flight_items=100)
        writer = client.trajectory_writer(3, options=options)
        adder = reverb.adders.EpisodeAdder(client, "table", max_length=1000, options=options, reconnect_timeout=60.0)

    Writers and adders take each option as an argument of its name, too. That overrides the one in `options`.

    Attributes:
      max_chunk_length: Maximum number of steps in a chunk, at most as many as the writer keeps. With None a chunk holds
        as many steps as fit into 64 KiB, at most 64, and an item waits at most a few milliseconds for its chunk to
        fill.
      compression: Codec for chunks, on the wire and in the server: `none` (the default), `lz4`, `zstd`, or `auto`,
        which tries the codecs on some chunks and keeps the best one for a while. A batch decodes each of its chunks
        once.
      delta_encoded: Whether to store integers as differences between steps before compression, which helps with image
        frames. `auto` chooses this by itself.
      max_pending_bytes: Limit in bytes on the unconfirmed items of the writer and their data, of all environments
        together, above which the next call that makes items waits; 64 MiB by default. The limit of the client applies
        as well.
      max_in_flight_items: Limit on the number of unconfirmed items of all environments together. Before a call makes
        items, it waits until the table's rate limiter has let enough others in, so that the limiter holds back the
        actor. A call that makes more items than that waits until none is unconfirmed; a writer with patterns waits for
        room for one. None, the default, means no limit for a writer; for an adder 64, and with `num_envs` as many as 64
        steps of each environment make, at least two of each.
      reconnect_timeout: Time in seconds to try to reach a lost server before unconfirmed items are discarded; 300 by
        default.

    Raises:
      ValueError: A number is out of range.
      TypeError: An option has the wrong type.
    """

    max_chunk_length: int | None = None
    compression: str = "none"
    delta_encoded: bool = False
    max_pending_bytes: int = MAX_PENDING_BYTES
    max_in_flight_items: int | None = None
    reconnect_timeout: float = 300.0

    def __post_init__(self) -> None:
        if not isinstance(self.compression, str):
            checks.refuse("compression", "a str", self.compression)
        if self.max_in_flight_items is not None:
            checks.as_count("max_in_flight_items", self.max_in_flight_items)
        checks.as_count("max_pending_bytes", self.max_pending_bytes)
        object.__setattr__(self, "delta_encoded", bool(self.delta_encoded))
        object.__setattr__(self, "reconnect_timeout", as_reconnect_timeout(self.reconnect_timeout))

    @classmethod
    def of(cls, caller: str, options: WriterOptions | None, given: Mapping[str, Any]) -> WriterOptions:
        """The options that a caller was given as an object and by name.

        Args:
          caller: Name of what was called, for the error message.
          options: Options for all that is not given by name; None means the defaults.
          given: Arguments by name.

        Raises:
          ValueError, TypeError: An option is invalid, or there is none of this name.
        """
        unknown = [name for name in given if name not in cls.__dataclass_fields__]
        if unknown:
            raise TypeError(f"{caller}() got an unexpected keyword argument {unknown[0]!r}")
        if not isinstance(options, WriterOptions | None):
            checks.refuse("options", "a reverb.WriterOptions", options)
        return dataclasses.replace(options or cls(), **given)


shows_writer_options = shows_options(WriterOptions, "Writer options")
"""Shows the options in the signature and help of what takes them as `**writer_options`."""
