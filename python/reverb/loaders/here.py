"""Batches from a server of this process."""

import functools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from reverb.client import Client
from reverb.loaders.batch import Batch
from reverb.loaders.conversion import Conversion, ToLeaves
from reverb.loaders.draws import Draws
from reverb.loaders.fields import Selection
from reverb.loaders.options import Options
from reverb.loaders.stats import StatsClock
from reverb.prioritized import importance_weights
from reverb.replay_sample import SampleInfo

if TYPE_CHECKING:
    from reverb.pybind import SampledHere

# Makes a named tuple without its constructor written in Python.
_new = tuple.__new__

__all__ = ["DrawsHere"]


class DrawsHere:
    """Draws batches of one table on the thread that asks for them, which has them at once.

    A small batch takes ten microseconds: to begin it ahead, to queue it and to wait for it would cost half as much
    again. One that the conversion cannot refuse does without a lease, too.

    Args:
      client: Of the server.
      table: The table's name.
      options: What is wanted; neither padding nor drawing ahead.
      conversion: To the loader's framework.
      selection: The columns that are kept.
      token: The number of the table's signature, to which the selection belongs.
      draws: All draws of the source, which counts them.
      clock: Gets the times.
    """

    def __init__(
        self,
        client: Client,
        table: str,
        options: Options,
        conversion: Conversion,
        selection: Selection,
        token: int,
        draws: Draws,
        clock: StatsClock,
    ) -> None:
        self._batch_size = options.batch_size
        self._num_batches = options.num_batches
        self._beta_of = None if options.beta is None else options.beta_of
        self._columns = None if selection.is_all else selection.columns
        self._names = selection.names
        self._pack = selection.pack
        self._to_leaves = conversion.columns
        self._convert = conversion.batch
        self._draws = draws
        self._clock = clock
        request = (table, options.batch_size, token, options.squeeze_time)
        self._begin = functools.partial(client._client.begin_here, *request)
        self._sample: Callable[[], SampledHere | None] | None = None
        if conversion.takes_all:
            self._sample = functools.partial(client._client.sample_here, *request, conversion.maker)

    def take(self) -> Any:
        """A batch, as the conversion makes it; None if the next one cannot be had at once, or there is to be none."""
        asked = time.perf_counter()
        if self._draws.begun == self._num_batches:
            return None
        # A function of the caller's may raise, and must do that before anything is drawn.
        beta = None if self._beta_of is None else self._beta_of(self._clock.stats.batches)
        at_once = None if self._sample is None else self._sample()
        if at_once is not None:
            arrived = time.perf_counter()
            infos, columns, are_made = at_once
            batch = self._batch(infos, columns, None if are_made else self._to_leaves, beta)
        else:
            begun = self._begin()
            if begun is None:
                return None
            sampled, draw = begun
            if sampled is None:
                self._draws.adopt(draw)
                return None
            arrived = time.perf_counter()
            # A draw that is not received goes back.
            batch = self._batch(sampled[0], sampled[1], self._to_leaves, beta)
            draw.received()
        self._draws.begun += 1
        self._clock.at_once(asked, arrived, self._batch_size)
        return batch

    def _batch(self, infos: Any, columns: Sequence[Any], to_leaves: ToLeaves | None, beta: float | None) -> Any:
        if self._columns is not None:
            columns = [columns[number] for number in self._columns]
        if to_leaves is not None:
            columns = to_leaves(columns, self._names)
        info = _new(SampleInfo, infos)
        weights = None if beta is None else importance_weights(info, beta)
        batch = _new(Batch, (info, self._pack(columns), weights, None, None))
        return batch if self._convert is None else self._convert(batch)
