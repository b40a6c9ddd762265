"""How a client makes its writers."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reverb import _checks, pybind, signatures
from reverb.reverb_types import TableInfo
from reverb.writer import Writer

if TYPE_CHECKING:
    from reverb.batched_writer import BatchedWriter
    from reverb.structured_writer import StructuredWriter
    from reverb.trajectory_writer import TrajectoryWriter

__all__ = ["ClientWriters"]


class ClientWriters:
    """The part of `reverb.Client` that makes writers."""

    _client: pybind.Client

    def _table_infos(self, timeout: float | None) -> dict[str, TableInfo]:
        raise NotImplementedError

    def writer(
        self,
        max_sequence_length: int,
        delta_encoded: bool = False,
        chunk_length: int | None = None,
        max_in_flight_items: int | None = 25,
        *,
        max_pending_bytes: int = 64 << 20,
        reconnect_timeout: float = 300.0,
    ) -> "Writer":
        """A writer whose items are the last steps, whole.

        Args:
          max_sequence_length: Steps of the longest item.
          delta_encoded: Whether chunks are compressed, integers as differences between steps, where that pays.
          chunk_length: Steps in a chunk, at most `max_sequence_length`; None: that, and at most 10.
          max_in_flight_items: Items that may be unconfirmed before the writer waits; None: 1 000 000.
          max_pending_bytes: The writer also waits while unconfirmed items and their data take more bytes than this.
          reconnect_timeout: Seconds that a lost server is looked for before unconfirmed items are given up.

        Raises:
          ValueError: A number is out of range.
          TypeError: A number is no integer.
          UnavailableError: The server cannot be reached.
        """
        max_length = _checks.as_int("max_sequence_length", max_sequence_length)
        if max_length < 1:
            raise ValueError(f"max_sequence_length ({max_sequence_length}) must be a positive integer")
        length = min(10, max_length) if chunk_length is None else _checks.as_int("chunk_length", chunk_length)
        if not 1 <= length <= max_length:
            raise ValueError(
                f"chunk_length ({chunk_length}) must be a positive integer le to max_sequence_length ({max_length})"
            )
        in_flight = 1_000_000 if max_in_flight_items is None else max_in_flight_items
        if _checks.as_int("max_in_flight_items", in_flight) < 1:
            raise ValueError(f"max_in_flight_items ({max_in_flight_items}) must be a positive integer")
        return Writer(
            self._client,
            max_length,
            length,
            in_flight,
            delta_encoded=bool(delta_encoded),
            signatures=self._signatures,
            max_pending_bytes=_checks.as_count("max_pending_bytes", max_pending_bytes),
            reconnect_timeout=_checks.as_timeout(reconnect_timeout) or 0.0,
        )

    def trajectory_writer(
        self,
        num_keep_alive_refs: int,
        *,
        validate_items: bool = True,
        get_signature_timeout_ms: int | None = -1,
        max_chunk_length: int | None = None,
        compression: str = "none",
        delta_encoded: bool = False,
        max_pending_bytes: int = 64 << 20,
        reconnect_timeout: float = 300.0,
    ) -> "TrajectoryWriter":
        """A writer whose items may refer to any of the last values of each column.

        Args:
          num_keep_alive_refs: Values of each column that items may refer to.
          validate_items: Whether items must fit the signature of their table, which is checked when they are made. Asks
            the server for the signatures, and waits for it. Items that are not checked are taken by any table; whoever
            reads them by the signature gets an error.
          get_signature_timeout_ms: How long the server may take for that; negative: as long as it must. None: as
            `validate_items=False`. (dm-reverb before 0.8 has this argument, and programs of its time give it.)
          max_chunk_length: Steps in a chunk. None: as many as fit 64 KiB, at most 64; an item then waits no more than
            some milliseconds for its chunk to fill.
          compression: Of chunks on their way and in the server: `none`, `lz4`, `zstd`, or `auto`, which tries what
            pays on some chunks and keeps to it for a while. A batch decodes each chunk that it takes rows of once.
          delta_encoded: Whether integers are stored as differences between steps before they are compressed, as pays
            for frames; `auto` finds that out by itself.
          max_pending_bytes: `create_item` waits while unconfirmed items and their data take more bytes than this.
          reconnect_timeout: Seconds that a lost server is looked for before unconfirmed items are given up.

        Raises:
          ValueError: A number is out of range.
          TypeError: A number is no integer.
          UnavailableError: The server cannot be reached, and `validate_items` is set.
          DeadlineExceededError: The server did not send the signatures in time.
        """
        from reverb.trajectory_writer import TrajectoryWriter, check_chunk_length

        if _checks.as_int("num_keep_alive_refs", num_keep_alive_refs) < 1:
            raise ValueError(f"num_keep_alive_refs ({num_keep_alive_refs}) must be a positive integer")
        check_chunk_length(max_chunk_length, num_keep_alive_refs)
        is_validated = validate_items and get_signature_timeout_ms is not None
        patience = _checks.as_int("get_signature_timeout_ms", get_signature_timeout_ms) / 1000 if is_validated else -1.0
        return TrajectoryWriter(
            self._client,
            num_keep_alive_refs,
            signatures=functools.partial(self._signatures, patience) if is_validated else None,
            max_chunk_length=max_chunk_length,
            compression=(compression, bool(delta_encoded)),
            max_pending_bytes=_checks.as_count("max_pending_bytes", max_pending_bytes),
            reconnect_timeout=_checks.as_timeout(reconnect_timeout) or 0.0,
        )

    def structured_writer(
        self,
        configs: Sequence[Any],
        *,
        max_chunk_length: int | None = None,
        compression: str = "none",
        delta_encoded: bool = False,
        max_pending_bytes: int = 64 << 20,
        reconnect_timeout: float = 300.0,
    ) -> "StructuredWriter":
        """A writer that makes items by patterns; see `reverb.structured_writer`. Contacts nobody.

        Args:
          configs: `reverb.structured.Config`s: what items to make; at least one.
          max_chunk_length: Steps in a chunk; None: as in `trajectory_writer`.
          compression: As in `trajectory_writer`.
          delta_encoded: As in `trajectory_writer`.
          max_pending_bytes: As in `trajectory_writer`.
          reconnect_timeout: As in `trajectory_writer`.

        Raises:
          ValueError: There is no config, or one is not valid; says which and why.
        """
        from reverb.structured_writer import StructuredWriter

        return StructuredWriter(
            self._client,
            configs,
            max_chunk_length=max_chunk_length,
            compression=(compression, bool(delta_encoded)),
            max_pending_bytes=_checks.as_count("max_pending_bytes", max_pending_bytes),
            reconnect_timeout=_checks.as_timeout(reconnect_timeout) or 0.0,
        )

    def batched_writer(
        self,
        num_envs: int,
        num_keep_alive_refs: int = 1,
        *,
        configs: Sequence[Any] = (),
        max_chunk_length: int | None = None,
        compression: str = "none",
        delta_encoded: bool = False,
        max_pending_bytes: int = 64 << 20,
        reconnect_timeout: float = 300.0,
    ) -> "BatchedWriter":
        """A writer for a vector of environments; see `reverb.batched_writer`. Contacts nobody.

        Args:
          num_envs: How many environments.
          num_keep_alive_refs: Steps of each environment that items may refer to.
          configs: Patterns, asked for each environment by itself; without them items are made by `create_items`.
          max_chunk_length: As in `trajectory_writer`.
          compression: As in `trajectory_writer`.
          delta_encoded: As in `trajectory_writer`.
          max_pending_bytes: As in `trajectory_writer`, for all environments together.
          reconnect_timeout: As in `trajectory_writer`.

        Raises:
          ValueError: A number is out of range, or a config is not valid.
          TypeError: A number is no integer.
        """
        from reverb.batched_writer import BatchedWriter
        from reverb.trajectory_writer import check_chunk_length

        keep = _checks.as_count("num_keep_alive_refs", num_keep_alive_refs)
        if not configs:
            check_chunk_length(max_chunk_length, keep)
        return BatchedWriter(
            self._client,
            _checks.as_count("num_envs", num_envs),
            keep,
            configs=configs,
            max_chunk_length=max_chunk_length,
            compression=(compression, bool(delta_encoded)),
            max_pending_bytes=_checks.as_count("max_pending_bytes", max_pending_bytes),
            reconnect_timeout=_checks.as_timeout(reconnect_timeout) or 0.0,
        )

    def _signatures(self, patience_s: float = -1.0) -> dict[str, list[signatures.FlatSpec] | None]:
        """The signatures of all tables, flattened. Waits `patience_s`; if negative, as long as it takes."""
        infos = self._table_infos(None if patience_s < 0 else patience_s)
        return {name: signatures.flat_specs(info.signature) for name, info in infos.items()}
