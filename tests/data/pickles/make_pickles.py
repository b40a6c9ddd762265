"""Writes pickles of the public objects that can be pickled, with whichever wheel is installed.

`python tests/data/pickles/make_pickles.py`. The files beside this one were written by the wheel of commit db0293b, with
NumPy 1, since NumPy 2 reads its arrays too. A unit test loads them with the package of today. Files that exist are not
written again: what an older wheel wrote must stay readable.
"""

import pathlib
import pickle

import numpy as np

import reverb
from reverb import adders, batched_writer, buffers, errors, exchange, loaders, rate_limiters, reverb_types, selectors
from reverb import structured_writer as structured
from reverb.cc import schema_pb2

FOLDER = pathlib.Path(__file__).parent
# Fixed, so that a file does not depend on the Python that writes it.
PROTOCOL = 4
STEP = {"observation": 0, "error": 0}
ERRORS = (
    "CancelledError",
    "DataLossError",
    "DeadlineExceededError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidPriorityError",
    "ItemTooLargeError",
    "MessageTooLargeError",
    "ResourceExhaustedError",
    "ReverbError",
    "SignatureMismatchError",
    "StorageError",
    "TableNotFoundError",
    "UnavailableError",
    "UnimplementedError",
)


def batch():
    info = reverb.SampleInfo(*(np.arange(2, dtype=dtype) for dtype in ("u8", "f8", "i8", "f8", "i4")))
    data = {"a": np.ones((2, 3), np.float32)}
    return loaders.Batch(info, data, np.ones(2, np.float32), {"a": np.ones((2, 3), bool)}, np.zeros(2, np.int32))


def config():
    step = structured.create_reference_step(STEP)
    return structured.create_config(
        {"x": step["observation"][-3:], "error": step["error"][-2]},
        "table",
        [structured.Condition.step_index() >= 3, structured.Condition.is_end_episode()],
        structured.td_error(0.9, STEP, lambda columns: columns["error"]),
    )


def table_info():
    signature = {"a": reverb.TensorSpec([2], np.float32, "a"), "b": reverb.BoundedTensorSpec([], np.int32, 0, 9, "b")}
    limiter = rate_limiters.SampleToInsertRatio(2.0, 3, 4.0)
    table = reverb.Table("table", selectors.Prioritized(0.6), selectors.Fifo(), 10, limiter, 5, signature=signature)
    # Without the figures that have been added later: an earlier wheel does not tell them.
    return reverb_types.TableInfo.from_serialized_proto(table.internal_table.info(), undelivered_samples=0)


def examples():
    """What is pickled, by the names of the files."""
    spec = reverb.TensorSpec([2, None], np.float32, "spec")
    reference = structured.create_reference_step(STEP)["error"]
    return {
        "batch": batch(),
        "buffer_sample": buffers.BufferSample(*range(5)),
        "checkpointer": reverb.checkpointers.DefaultCheckpointer("/tmp/pickled", "group", keep=3),
        "client": reverb.Client("localhost:8000"),
        "conditions": [
            structured.Condition(),
            structured.Condition.step_index() % 4,
            structured.Condition.step_index() % 4 == 1,
        ],
        "config": config(),
        "errors": [getattr(errors, name)("what went wrong") for name in ERRORS],
        "names": names(),
        "options": loaders.Options(batch_size=3, beta=loaders.LinearBeta(0.4, 1.0, 100), timeout=2.0),
        "ragged": reverb.Ragged(np.arange(6.0), np.array([1, 2, 3])),
        "rate_limiters": [
            rate_limiters.MinSize(2),
            rate_limiters.Queue(3),
            rate_limiters.RateLimiter(1.0, 2, -3.0, 4.0),
            rate_limiters.SampleToInsertRatio(2.0, 3, 4.0),
            rate_limiters.Stack(4),
        ],
        "references": [reference, reference[-1], reference[-3:-1]],
        "replay_sample": reverb.ReplaySample(reverb.SampleInfo(7, 0.5, 3, 1.5, 2), {"a": [np.arange(3), b"text"]}),
        "returns": adders.NStepReturns(5, 0.9),
        "selectors": [
            selectors.Fifo(),
            selectors.Lifo(),
            selectors.MaxHeap(),
            selectors.MinHeap(),
            selectors.Prioritized(0.6),
            selectors.Uniform(),
        ],
        "specs": [spec, spec.shape, reverb.BoundedTensorSpec([2], np.int64, -1, [3, 4], "bounded")],
        "stats": loaders.LoaderStats(),
        "table_info": table_info(),
        "table_info_message": schema_pb2.TableInfo(name="table", max_size=3),
    }


def names():
    """Classes and functions, which pickles have by their names."""
    return [
        adders.EpisodeAdder,
        adders.NStepTransitionAdder,
        adders.SequenceAdder,
        adders.sequence_configs,
        batched_writer.BatchedWriter,
        buffers.EpisodicBuffer,
        buffers.PrioritizedBuffer,
        buffers.UniformBuffer,
        exchange.from_rlds,
        loaders.BatchSource,
        loaders.NumpyLoader,
        reverb.Server,
        reverb.Table,
        reverb.Table.queue,
        reverb.TrajectoryColumn,
        reverb.TrajectoryWriter,
        reverb.Writer,
        reverb.checkpointers.CheckpointerBase,
        reverb.checkpointers.TempDirCheckpointer,
        reverb.checkpointers.open,
        reverb.importance_weights,
        structured.constant_priority_fn,
        structured.create_config,
        structured.create_reference_step,
        structured.pattern_from_transform,
        structured.td_error,
        structured.unpack_pattern,
    ]


if __name__ == "__main__":
    for name, value in examples().items():
        path = FOLDER / f"{name}.pickle"
        if not path.exists():
            path.write_bytes(pickle.dumps(value, PROTOCOL))
