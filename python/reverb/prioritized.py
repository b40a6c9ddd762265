"""Prioritized replay: Schaul et al. 2016, "Prioritized Experience Replay"."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from reverb import _binding
from reverb.replay_sample import SampleInfo

__all__ = ["importance_weights"]


class _Drawn(Protocol):
    """A sample, or a batch of a loader."""

    @property
    def info(self) -> SampleInfo: ...


def importance_weights(info: SampleInfo | _Drawn, beta: float, *, normalize: bool = True) -> NDArray[np.float32]:
    """Computes the importance-sampling weights (N * P(i))^-beta, §3.4, which correct for nonuniform sampling.

    N is the size of the table and P(i) the probability of item i, both at the time of the draw.

    Args:
      info: Info of a batch, whose fields are arrays `[batch]`, or of a single sample; or the batch or sample itself.
      beta: Strength of the correction, from 0 (none) to 1 (full).
      normalize: Whether to divide the weights by the largest weight of the batch, so that the maximum is 1.

    Returns:
      The weights, float32 `[batch]`.

    Raises:
      TypeError: `info` is something else.
    """
    own: Any = getattr(info, "info", info)
    try:
        probability, table_size = own.probability, own.table_size
    except AttributeError:
        raise TypeError(f"info: expected sample.info, or the sample or batch, got {type(info).__name__}") from None
    try:
        return _binding.importance_weights(probability, table_size, beta, normalize)
    except TypeError:
        # The fields are arrays of another framework, dtype or rank, or the numbers of a single sample.
        probability, table_size = np.broadcast_arrays(
            np.asarray(probability, np.float64), np.asarray(table_size, np.int64)
        )
        flat = _binding.importance_weights(probability.ravel(), table_size.ravel(), beta, normalize)
        return flat.reshape(probability.shape)
