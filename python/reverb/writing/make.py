"""Creates the writers of a client: checks the arguments of `reverb.Client.writer` and its sibling methods."""

import functools
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

__all__ = ["make_batched_writer", "make_structured_writer", "make_trajectory_writer", "make_writer"]


def make_writer(
    engine: _binding.Client,
    max_sequence_length: int,
    delta_encoded: bool,
    chunk_length: int | None,
    max_in_flight_items: int | None,
    *,
    max_pending_bytes: int,
    reconnect_timeout: float,
) -> "Writer":
    """Creates a writer that sends through `engine`; for the other arguments see `reverb.Client.writer`."""
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
        engine,
        max_length,
        length,
        in_flight,
        delta_encoded=bool(delta_encoded),
        signatures=functools.partial(_signatures, engine),
        max_pending_bytes=checks.as_count("max_pending_bytes", max_pending_bytes),
        reconnect_timeout=checks.as_timeout(reconnect_timeout) or 0.0,
    )


def make_trajectory_writer(
    engine: _binding.Client,
    num_keep_alive_refs: int,
    *,
    validate_items: bool,
    get_signature_timeout_ms: int | None,
    max_chunk_length: int | None,
    compression: str,
    delta_encoded: bool,
    max_pending_bytes: int,
    reconnect_timeout: float,
) -> "TrajectoryWriter":
    """Creates a writer that sends through `engine`; for the other arguments see `reverb.Client.trajectory_writer`."""
    from reverb.trajectory_writer import TrajectoryWriter, check_chunk_length

    if checks.as_int("num_keep_alive_refs", num_keep_alive_refs) < 1:
        raise ValueError(f"num_keep_alive_refs ({num_keep_alive_refs}) must be a positive integer")
    check_chunk_length(max_chunk_length, num_keep_alive_refs)
    is_validated = validate_items and get_signature_timeout_ms is not None
    timeout_s = checks.as_int("get_signature_timeout_ms", get_signature_timeout_ms) / 1000 if is_validated else -1.0
    return TrajectoryWriter(
        engine,
        num_keep_alive_refs,
        signatures=functools.partial(_signatures, engine, timeout_s) if is_validated else None,
        max_chunk_length=max_chunk_length,
        compression=(compression, bool(delta_encoded)),
        max_pending_bytes=checks.as_count("max_pending_bytes", max_pending_bytes),
        reconnect_timeout=checks.as_timeout(reconnect_timeout) or 0.0,
    )


def make_structured_writer(
    engine: _binding.Client,
    configs: Sequence[Any],
    *,
    max_chunk_length: int | None,
    compression: str,
    delta_encoded: bool,
    max_pending_bytes: int,
    reconnect_timeout: float,
) -> "StructuredWriter":
    """Creates a writer that sends through `engine`; for the other arguments see `reverb.Client.structured_writer`."""
    from reverb.structured_writer import StructuredWriter

    return StructuredWriter(
        engine,
        configs,
        max_chunk_length=max_chunk_length,
        compression=(compression, bool(delta_encoded)),
        max_pending_bytes=checks.as_count("max_pending_bytes", max_pending_bytes),
        reconnect_timeout=checks.as_timeout(reconnect_timeout) or 0.0,
    )


def make_batched_writer(
    engine: _binding.Client,
    num_envs: int,
    num_keep_alive_refs: int,
    *,
    configs: Sequence[Any],
    max_chunk_length: int | None,
    compression: str,
    delta_encoded: bool,
    max_pending_bytes: int,
    reconnect_timeout: float,
) -> "BatchedWriter":
    """Creates a writer that sends through `engine`; for the other arguments see `reverb.Client.batched_writer`."""
    from reverb.batched_writer import BatchedWriter
    from reverb.trajectory_writer import check_chunk_length

    keep = checks.as_count("num_keep_alive_refs", num_keep_alive_refs)
    if not configs:
        check_chunk_length(max_chunk_length, keep)
    return BatchedWriter(
        engine,
        checks.as_count("num_envs", num_envs),
        keep,
        configs=configs,
        max_chunk_length=max_chunk_length,
        compression=(compression, bool(delta_encoded)),
        max_pending_bytes=checks.as_count("max_pending_bytes", max_pending_bytes),
        reconnect_timeout=checks.as_timeout(reconnect_timeout) or 0.0,
    )


def _signatures(engine: _binding.Client, timeout_s: float = -1.0) -> dict[str, list[signatures.FlatSpec] | None]:
    """The flattened signatures of all tables. Waits at most `timeout_s` seconds; without a limit if negative."""
    infos = table_infos(engine, None if timeout_s < 0 else timeout_s)
    return {name: signatures.flat_specs(info.signature) for name, info in infos.items()}
