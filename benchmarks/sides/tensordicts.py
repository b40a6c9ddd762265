"""Buffers of TensorDicts, which TorchRL's side and ours have with the same methods."""

import payloads
import torch
from tensordict import TensorDict

# Batches are small: more threads were never faster, and on busy cores each call waited up to 24 ms for them.
torch.set_num_threads(1)


class Buffer:
    """The calls of a buffer with TorchRL's methods. The columns of a frame are nested at the dots of their names."""

    def __init__(self, buffer, payload):
        self._buffer, self._names = buffer, list(payloads.PAYLOADS[payload])

    def adder(self, rows):
        tensors = {name: torch.from_numpy(column) for name, column in rows.items()}
        count = len(next(iter(tensors.values())))
        frames = TensorDict(tensors, batch_size=[count]).unflatten_keys(".")
        if count == 1:
            frame = frames[0]
            return lambda: self._buffer.add(frame)
        return lambda: self._buffer.extend(frames)

    def drawer(self, count):
        return lambda: self._buffer.sample(count)

    def updater(self, priorities):
        errors = torch.from_numpy(priorities).float()

        def update(batch):
            batch.set("td_error", errors)
            self._buffer.update_tensordict_priority(batch)

        return update

    def read(self, batch):
        columns = {name: batch[tuple(name.split("."))].numpy() for name in self._names}
        return columns, batch["index"].numpy()
