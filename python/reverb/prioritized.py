"""Prioritized replay: Schaul et al. 2016, "Prioritized Experience Replay"."""

import numpy as np
from numpy.typing import NDArray

from reverb import _binding
from reverb.replay_sample import SampleInfo

__all__ = ["importance_weights"]


def importance_weights(info: SampleInfo, beta: float, *, normalize: bool = True) -> NDArray[np.float32]:
    """Computes the importance-sampling weights (N * P(i))^-beta, §3.4, which correct for nonuniform sampling.

    N is the size of the table and P(i) the probability of item i, both at the time of the draw.

    Args:
      info: Info of a batch, whose fields are arrays `[batch]`, or of a single sample.
      beta: Strength of the correction, from 0 (none) to 1 (full).
      normalize: Whether to divide the weights by the largest weight of the batch, so that the maximum is 1.

    Returns:
      The weights, float32 `[batch]`.
    """
    probability, table_size = info.probability, info.table_size
    try:
        return _binding.importance_weights(probability, table_size, beta, normalize)
    except TypeError:
        # The fields are arrays of another framework, dtype or rank, or the numbers of a single sample.
        probability, table_size = np.broadcast_arrays(
            np.asarray(probability, np.float64), np.asarray(table_size, np.int64)
        )
        flat = _binding.importance_weights(probability.ravel(), table_size.ravel(), beta, normalize)
        return flat.reshape(probability.shape)
