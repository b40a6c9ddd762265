"""Prioritised replay: Schaul et al. 2016, "Prioritized Experience Replay"."""

import numpy as np
from numpy.typing import NDArray

from reverb import pybind
from reverb.replay_sample import SampleInfo

__all__ = ["importance_weights"]


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
    probability, table_size = info.probability, info.table_size
    try:
        return pybind.importance_weights(probability, table_size, beta, normalize)
    except TypeError:
        # Arrays of another framework, another dtype or another rank, or the numbers of a single sample.
        probability, table_size = np.broadcast_arrays(
            np.asarray(probability, np.float64), np.asarray(table_size, np.int64)
        )
        flat = pybind.importance_weights(probability.ravel(), table_size.ravel(), beta, normalize)
        return flat.reshape(probability.shape)
