"""Prioritised replay: Schaul et al. 2016, "Prioritized Experience Replay"."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reverb.replay_sample import SampleInfo

__all__ = ["importance_weights"]

_smallest = np.minimum.reduce


def importance_weights(info: SampleInfo, beta: float, *, normalize: bool = True) -> NDArray[np.float32]:
    """The weights that correct for drawing some items more often than others: (N * P(i))^-beta, §3.4.

    N is the size of the table and P(i) the probability of item i, both at the moment of the draw.

    Args:
      info: Of a batch, with fields `[batch]`.
      beta: How much is corrected, from 0, nothing, to 1, all.
      normalize: Whether the weights are divided by the greatest of the batch, which then is 1.

    Returns:
      float32 `[batch]`.
    """
    expected: Any = np.multiply(info.probability, info.table_size)  # How often item i is drawn in N draws.
    if normalize:
        expected = expected / _smallest(expected)
    # Single precision from here on: numpy has vectors for its logarithm and exponential.
    logarithm = np.log(expected, dtype=np.float32, casting="same_kind")
    logarithm *= np.float32(-beta)
    weights: NDArray[np.float32] = np.exp(logarithm, out=logarithm)
    return weights
