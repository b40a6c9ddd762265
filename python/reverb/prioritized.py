"""Prioritised replay: Schaul et al. 2016, "Prioritized Experience Replay"."""

import numpy as np
from numpy.typing import NDArray

from reverb.replay_sample import SampleInfo

__all__ = ["importance_weights"]

_SINGLE = np.dtype(np.float32)
_least, _log, _exp = np.minimum.reduce, np.log, np.exp


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
    # Numpy has vectors for the logarithm and exponential of single precision, but not for its power.
    exponent: NDArray[np.float32] = np.multiply(info.probability, info.table_size).astype(_SINGLE)
    _log(exponent, exponent)
    if normalize:
        exponent -= _least(exponent)
    exponent *= -beta
    return _exp(exponent, exponent)
