"""Batches as NumPy arrays."""

from reverb.loaders.loader import Loader

__all__ = ["NumpyLoader"]


class NumpyLoader(Loader):
    """Batches as NumPy arrays, in the tables' dtypes; strings are `object` arrays of bytes.

    The arrays of a batch share one buffer, which is used again when the last of them is gone.

        with reverb.loaders.NumpyLoader("localhost:8000", "replay", batch_size=256, beta=0.6) as loader:
            for batch in loader:
                errors = learn(batch.data, batch.weights)
                loader.update_priorities(batch, errors)
    """
