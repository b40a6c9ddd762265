"""Experience replay as a service. Each name is imported when it is first used.

Ten things to know:

    Server               serves tables, in this process or for others
    Table                holds items, and says how they are drawn, removed and limited; `Table.queue`, `Table.stack`
    selectors            which item is drawn or removed: Uniform, Prioritized, Fifo, Lifo, MaxHeap, MinHeap
    rate_limiters        when inserts and draws wait: MinSize, SampleToInsertRatio, Queue, Stack
    Client               inserts, draws and updates: `insert_batch`, `sample_batch`, `update_priorities`
    TrajectoryWriter     writes steps, and items of several of them: `Client.trajectory_writer`, `batched_writer`
    adders               write what agents learn from: n-step transitions, sequences, episodes
    loaders              give a learner batches of NumPy, PyTorch, JAX or TensorFlow, drawn ahead
    TrajectoryDataset    a `tf.data` dataset of items, with TimestepDataset and TFClient, where TensorFlow is installed
    errors               what can go wrong; all of them are a ReverbError

Further: `reverb.aio` (asyncio), `reverb.cluster` (several servers as one buffer), `reverb.ray` (clusters on Ray),
`reverb.structured` (patterns of items), `reverb.buffers` (replay in one process), `reverb.exchange` (Arrow, Parquet,
Minari, RLDS), `reverb.checkpointers`, and the command `reverb`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reverb import adders as adders
    from reverb import aio as aio
    from reverb import batched_writer as batched_writer
    from reverb import buffers as buffers
    from reverb import cc as cc
    from reverb import checkpoint_reader as checkpoint_reader
    from reverb import client as client
    from reverb import cluster as cluster
    from reverb import errors as errors
    from reverb import exchange as exchange
    from reverb import item_selectors as item_selectors
    from reverb import item_selectors as selectors
    from reverb import loaders as loaders
    from reverb import pattern_dataset as pattern_dataset
    from reverb import platform as platform
    from reverb import prioritized as prioritized
    from reverb import pybind as pybind
    from reverb import rate_limiters as rate_limiters
    from reverb import ray as ray
    from reverb import replay_sample as replay_sample
    from reverb import reverb_types as reverb_types
    from reverb import server as server
    from reverb import structured_writer as structured
    from reverb import structured_writer as structured_writer
    from reverb import tensor_spec as tensor_spec
    from reverb import tf_client as tf_client
    from reverb import timestep_dataset as timestep_dataset
    from reverb import trajectory_dataset as trajectory_dataset
    from reverb import trajectory_writer as trajectory_writer
    from reverb import writer as writer
    from reverb.batched_writer import BatchedWriter as BatchedWriter
    from reverb.client import Client as Client
    from reverb.data.durability import Durability as Durability
    from reverb.data.tls import TLS as TLS
    from reverb.data.tls import ServerTLS as ServerTLS
    from reverb.data.tokens import Tokens as Tokens
    from reverb.errors import DeadlineExceededError as DeadlineExceededError
    from reverb.errors import ReverbError as ReverbError
    from reverb.pattern_dataset import PatternDataset as PatternDataset
    from reverb.platform.default import checkpointers as checkpointers
    from reverb.prioritized import importance_weights as importance_weights
    from reverb.replay_sample import Ragged as Ragged
    from reverb.replay_sample import ReplaySample as ReplaySample
    from reverb.replay_sample import SampleInfo as SampleInfo
    from reverb.server import Server as Server
    from reverb.server import Table as Table
    from reverb.tensor_spec import BoundedTensorSpec as BoundedTensorSpec
    from reverb.tensor_spec import TensorSpec as TensorSpec
    from reverb.tf_client import TFClient as TFClient
    from reverb.timestep_dataset import TimestepDataset as TimestepDataset
    from reverb.trajectory_dataset import TrajectoryDataset as TrajectoryDataset
    from reverb.trajectory_writer import TrajectoryColumn as TrajectoryColumn
    from reverb.trajectory_writer import TrajectoryWriter as TrajectoryWriter
    from reverb.writer import Writer as Writer
    from reverb.writing.options import WriterOptions as WriterOptions

# Maps each public name to its location: `module` for a module, `module:name` for an object in a module. A test compares
# this table with the imports above, which type checkers read.
_NAMES = {
    "BatchedWriter": "batched_writer:BatchedWriter",
    "BoundedTensorSpec": "tensor_spec:BoundedTensorSpec",
    "Client": "client:Client",
    "DeadlineExceededError": "errors:DeadlineExceededError",
    "Durability": "data.durability:Durability",
    "PatternDataset": "pattern_dataset:PatternDataset",
    "Ragged": "replay_sample:Ragged",
    "ReplaySample": "replay_sample:ReplaySample",
    "ReverbError": "errors:ReverbError",
    "SampleInfo": "replay_sample:SampleInfo",
    "Server": "server:Server",
    "ServerTLS": "data.tls:ServerTLS",
    "TFClient": "tf_client:TFClient",
    "TLS": "data.tls:TLS",
    "Table": "server:Table",
    "TensorSpec": "tensor_spec:TensorSpec",
    "TimestepDataset": "timestep_dataset:TimestepDataset",
    "Tokens": "data.tokens:Tokens",
    "TrajectoryColumn": "trajectory_writer:TrajectoryColumn",
    "TrajectoryDataset": "trajectory_dataset:TrajectoryDataset",
    "TrajectoryWriter": "trajectory_writer:TrajectoryWriter",
    "Writer": "writer:Writer",
    "WriterOptions": "writing.options:WriterOptions",
    "adders": "adders",
    "aio": "aio",
    "batched_writer": "batched_writer",
    "buffers": "buffers",
    "cc": "cc",
    "checkpoint_reader": "checkpoint_reader",
    "checkpointers": "platform.default.checkpointers",
    "client": "client",
    "cluster": "cluster",
    "errors": "errors",
    "exchange": "exchange",
    "importance_weights": "prioritized:importance_weights",
    "item_selectors": "item_selectors",
    "loaders": "loaders",
    "pattern_dataset": "pattern_dataset",
    "platform": "platform",
    "prioritized": "prioritized",
    "pybind": "pybind",
    "rate_limiters": "rate_limiters",
    "ray": "ray",
    "replay_sample": "replay_sample",
    "reverb_types": "reverb_types",
    "selectors": "item_selectors",
    "server": "server",
    "structured": "structured_writer",
    "structured_writer": "structured_writer",
    "tensor_spec": "tensor_spec",
    "tf_client": "tf_client",
    "timestep_dataset": "timestep_dataset",
    "trajectory_dataset": "trajectory_dataset",
    "trajectory_writer": "trajectory_writer",
    "writer": "writer",
}

# These names need TensorFlow, so `import *` must leave them out.
_NEEDING_TENSORFLOW = (
    "PatternDataset",
    "TFClient",
    "TimestepDataset",
    "TrajectoryDataset",
    "pattern_dataset",
    "tf_client",
    "timestep_dataset",
    "trajectory_dataset",
)

__all__ = [name for name in _NAMES if name not in _NEEDING_TENSORFLOW]


__version__: str


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("reverb.platform.version").version()
    location = _NAMES.get(name)
    if location is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = location.partition(":")
    value: Any = importlib.import_module(f"{__name__}.{module}")
    if attribute:
        value = getattr(value, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from importlib.util import find_spec

    # Without TensorFlow, `help` and `inspect` must not ask for the names that need it.
    missing = () if find_spec("tensorflow") else _NEEDING_TENSORFLOW
    return sorted({*globals(), *_NAMES, "__version__"}.difference(missing))
