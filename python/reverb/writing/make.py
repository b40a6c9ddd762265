"""The methods of `reverb.Client` that create writers."""

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reverb import _binding
from reverb.data import checks, signatures
from reverb.reverb_types import table_infos
from reverb.writer import Writer

if TYPE_CHECKING:
    from reverb.batched_writer import BatchedWriter
    from reverb.structured_writer import StructuredWriter
    from reverb.trajectory_writer import TrajectoryWriter

__all__ = ["MAX_PENDING_BYTES", "MakesWriters"]

# Default of `max_pending_bytes`, of a client and of each of its writers.
# limit (Writers): bytes of a writer's unconfirmed items | {} | `create_item` waits | `max_pending_bytes=` of each
# writer
MAX_PENDING_BYTES = 64 << 20


class MakesWriters:
    """Base class of `reverb.Client`, with the methods that create writers.

    Attributes:
      engine: The native client, for other modules of this package. It is not part of the public interface.
    """

    engine: _binding.Client

    def writer(
        self,
        max_sequence_length: int,
        delta_encoded: bool = False,
        chunk_length: int | None = None,
        # limit (Writers): number of a writer's unconfirmed items, of `Client.writer` | {} | the call that makes items
        # waits | `max_in_flight_items=` of each writer
        max_in_flight_items: int | None = 25,
        *,
        max_pending_bytes: int = MAX_PENDING_BYTES,
        reconnect_timeout: float = 300.0,
    ) -> "Writer":
        """Creates a writer whose items consist of the last steps, with all their columns.

        Args:
          max_sequence_length: Maximum number of steps in an item, at least 1.
          delta_encoded: Whether to compress chunks, with integers as differences between steps, if that saves space.
          chunk_length: Number of steps in a chunk, at most `max_sequence_length`; None means the smaller of
            `max_sequence_length` and 10.
          max_in_flight_items: Maximum number of unconfirmed items, beyond which the writer waits; 25 by default, and
            None means 1,000,000.
          max_pending_bytes: Limit in bytes on unconfirmed items of this writer and their data, above which the writer
            also waits; 64 MiB by default. The limit of the client applies as well.
          reconnect_timeout: Time in seconds to try to reach a lost server before unconfirmed items are discarded; 300
            by default.

        Raises:
          ValueError: A number is out of range.
          TypeError: A number is not an integer.
          UnavailableError: The server cannot be reached.
        """
        max_length = checks.as_int("max_sequence_length", max_sequence_length)
        if max_length < 1:
            raise ValueError(f"max_sequence_length ({max_sequence_length}) must be a positive integer")
        length = min(10, max_length) if chunk_length is None else checks.as_int("chunk_length", chunk_length)
        if not 1 <= length <= max_length:
            raise ValueError(
                f"chunk_length ({chunk_length}) must be a positive integer le to max_sequence_length ({max_length})"
            )
        in_flight = 1_000_000 if max_in_flight_items is None else max_in_flight_items
        if checks.as_int("max_in_flight_items", in_flight) < 1:
            raise ValueError(f"max_in_flight_items ({max_in_flight_items}) must be a positive integer")
        return Writer(
            self.engine,
            max_length,
            length,
            in_flight,
            delta_encoded=bool(delta_encoded),
            signatures=functools.partial(_signatures, self.engine),
            max_pending_bytes=checks.as_count("max_pending_bytes", max_pending_bytes),
            reconnect_timeout=_reconnect_seconds(reconnect_timeout),
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
        max_pending_bytes: int = MAX_PENDING_BYTES,
        reconnect_timeout: float = 300.0,
        max_in_flight_items: int | None = None,
    ) -> "TrajectoryWriter":
        """Creates a writer whose items may refer to any of the last values of each column.

        Args:
          num_keep_alive_refs: Number of values of each column that items may refer to, at least 1.
          validate_items: Whether to check, when an item is created, that it fits the signature of its table. The
            writer then asks the server for the signatures and waits for them. Tables accept unchecked items, but
            reading a misfit by the table's signature raises an error.
          get_signature_timeout_ms: Time limit in milliseconds for fetching the signatures. A negative number, the
            default, means no limit. None means `validate_items=False`. (Programs written for dm-reverb before 0.8 pass
            this argument.)
          max_chunk_length: Maximum number of steps in a chunk, at most `num_keep_alive_refs`. With None a chunk holds
            as many steps as fit into 64 KiB, at most 64, and an item waits at most a few milliseconds for its chunk to
            fill.
          compression: Codec for chunks, on the wire and in the server: `none` (the default), `lz4`, `zstd`, or `auto`,
            which tries the codecs on some chunks and keeps the best one for a while. A batch decodes each of its
            chunks once.
          delta_encoded: Whether to store integers as differences between steps before compression, which helps with
            image frames. `auto` chooses this by itself.
          max_pending_bytes: Limit in bytes on unconfirmed items of this writer and their data, above which
            `create_item` waits; 64 MiB by default. The limit of the client applies as well.
          reconnect_timeout: Time in seconds to try to reach a lost server before unconfirmed items are discarded; 300
            by default.
          max_in_flight_items: Limit on the number of unconfirmed items of this writer, above which `create_item` waits
            until the table's rate limiter has let enough of them in. None, the default, sets no limit on their number.

        Raises:
          ValueError: A number is out of range.
          TypeError: A number is not an integer.
          UnavailableError: The server cannot be reached, and `validate_items` is set.
          DeadlineExceededError: The server did not send the signatures within the timeout.
        """
        from reverb.trajectory_writer import TrajectoryWriter, check_chunk_length

        if checks.as_int("num_keep_alive_refs", num_keep_alive_refs) < 1:
            raise ValueError(f"num_keep_alive_refs ({num_keep_alive_refs}) must be a positive integer")
        check_chunk_length(max_chunk_length, num_keep_alive_refs)
        is_validated = validate_items and get_signature_timeout_ms is not None
        timeout_s = checks.as_int("get_signature_timeout_ms", get_signature_timeout_ms) / 1000 if is_validated else -1.0
        return TrajectoryWriter(
            self.engine,
            num_keep_alive_refs,
            signatures=functools.partial(_signatures, self.engine, timeout_s) if is_validated else None,
            max_chunk_length=max_chunk_length,
            compression=(compression, bool(delta_encoded)),
            limits=_limits(max_pending_bytes, max_in_flight_items, reconnect_timeout),
        )

    def structured_writer(
        self,
        configs: Sequence[Any],
        *,
        max_chunk_length: int | None = None,
        compression: str = "none",
        delta_encoded: bool = False,
        max_pending_bytes: int = MAX_PENDING_BYTES,
        reconnect_timeout: float = 300.0,
        max_in_flight_items: int | None = None,
    ) -> "StructuredWriter":
        """Creates a writer that makes items from patterns; see `reverb.structured_writer`. Does not contact the server.

        Args:
          configs: Configs (`reverb.structured.Config`) of the items to create, at least one.
          max_chunk_length: Maximum number of steps in a chunk. With None a chunk holds as many steps as fit into
            64 KiB, at most 64, and an item waits at most a few milliseconds for its chunk to fill.
          compression: Codec for chunks: `none` (the default), `lz4`, `zstd` or `auto`; see `trajectory_writer`.
          delta_encoded: Whether to store integers as differences between steps before compression.
          max_pending_bytes: Limit in bytes on unconfirmed items of this writer and their data, above which the writer
            waits; 64 MiB by default. The limit of the client applies as well.
          reconnect_timeout: Time in seconds to try to reach a lost server before unconfirmed items are discarded; 300
            by default.
          max_in_flight_items: Limit on the number of unconfirmed items of this writer, above which `append` waits until
            the table's rate limiter has let enough of them in. None, the default, sets no limit on their number.

        Raises:
          ValueError: There is no config, or a config is invalid. The message says which one, and why.
        """
        from reverb.structured_writer import StructuredWriter

        return StructuredWriter(
            self.engine,
            configs,
            max_chunk_length=max_chunk_length,
            compression=(compression, bool(delta_encoded)),
            limits=_limits(max_pending_bytes, max_in_flight_items, reconnect_timeout),
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
        max_pending_bytes: int = MAX_PENDING_BYTES,
        reconnect_timeout: float = 300.0,
        max_in_flight_items: int | None = None,
    ) -> "BatchedWriter":
        """Creates a writer for a vector of environments; see `reverb.batched_writer`. Does not contact the server.

        Args:
          num_envs: Number of environments in the vector, at least 1.
          num_keep_alive_refs: Number of steps of each environment that items may refer to, at least 1.
          configs: Configs of the items to create, evaluated separately for each environment. Without configs, the
            default, items are created with `create_items`.
          max_chunk_length: Maximum number of steps in a chunk. With None a chunk holds as many steps as fit into
            64 KiB, at most 64, and an item waits at most a few milliseconds for its chunk to fill.
          compression: Codec for chunks: `none` (the default), `lz4`, `zstd` or `auto`; see `trajectory_writer`.
          delta_encoded: Whether to store integers as differences between steps before compression.
          max_pending_bytes: Limit in bytes on unconfirmed items and their data, for all environments together, above
            which the writer waits; 64 MiB by default. The limit of the client applies as well.
          reconnect_timeout: Time in seconds to try to reach a lost server before unconfirmed items are discarded; 300
            by default.
          max_in_flight_items: Limit on the number of unconfirmed items of all environments together. A call makes its
            items, up to one for each environment and config, and then waits while there are more than this. None, the
            default, sets no limit on their number.

        Raises:
          ValueError: A number is out of range, or a config is invalid.
          TypeError: A number is not an integer.
        """
        from reverb.batched_writer import BatchedWriter
        from reverb.trajectory_writer import check_chunk_length

        keep = checks.as_count("num_keep_alive_refs", num_keep_alive_refs)
        if not configs:
            check_chunk_length(max_chunk_length, keep)
        return BatchedWriter(
            self.engine,
            checks.as_count("num_envs", num_envs),
            keep,
            configs=configs,
            max_chunk_length=max_chunk_length,
            compression=(compression, bool(delta_encoded)),
            limits=_limits(max_pending_bytes, max_in_flight_items, reconnect_timeout),
        )


def _limits(
    max_pending_bytes: int, max_in_flight_items: int | None, reconnect_timeout: float
) -> tuple[int, int | None, float]:
    """The checked limits of a writer, in the form that the extension takes."""
    return (
        checks.as_count("max_pending_bytes", max_pending_bytes),
        None if max_in_flight_items is None else checks.as_count("max_in_flight_items", max_in_flight_items),
        _reconnect_seconds(reconnect_timeout),
    )


def _reconnect_seconds(reconnect_timeout: float) -> float:
    seconds = checks.as_timeout(reconnect_timeout)
    return math.inf if seconds is None else seconds


def _signatures(engine: _binding.Client, timeout_s: float = -1.0) -> dict[str, signatures.FlatSignature | None]:
    """The signatures of all tables. Waits at most `timeout_s` seconds; without a limit if negative."""
    infos = table_infos(engine, None if timeout_s < 0 else timeout_s)
    return {name: signatures.flatten(info.signature) for name, info in infos.items()}
