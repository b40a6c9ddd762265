"""Runs scripted scenarios against the `reverb` of whichever interpreter runs this file, and prints what was seen.

    python driver.py < scenarios.json > traces.json

A scenario is `{"tables": [...], "ops": [...]}`. Each op gives one entry of the trace. Keys of items are random, so
items are named by the number in their first column; a key is known once its item has been drawn. No op ever blocks:
inserts and samples are only made when the table says that they would go at once.
"""

import contextlib
import json
import os
import sys

import numpy as np

SELECTORS = {
    "fifo": lambda s: s.Fifo(),
    "lifo": lambda s: s.Lifo(),
    "uniform": lambda s: s.Uniform(),
    "prioritized": lambda s, exponent: s.Prioritized(exponent),
    "min_heap": lambda s: s.MinHeap(),
    "max_heap": lambda s: s.MaxHeap(),
}


class Run:
    """Runs one scenario on a new server.

    Args:
      reverb: Module under test.
      scenario: Scenario as described above.
    """

    def __init__(self, reverb, scenario):
        self.reverb = reverb
        self.tables = {spec["name"]: self.make_table(spec) for spec in scenario["tables"]}
        self.server = reverb.Server(tables=list(self.tables.values()))
        self.client = self.server.localhost_client()
        self.keys = {}

    def make_table(self, spec):
        reverb = self.reverb
        if spec.get("kind") in ("queue", "stack"):
            return getattr(reverb.Table, spec["kind"])(spec["name"], spec["max_size"])
        sampler, remover = (
            SELECTORS[kind](reverb.selectors, *args) for kind, *args in (spec["sampler"], spec["remover"])
        )
        kind, *args = spec["limiter"]
        limiter = getattr(reverb.rate_limiters, kind)(*(tuple(arg) if isinstance(arg, list) else arg for arg in args))
        return reverb.Table(
            spec["name"],
            sampler,
            remover,
            spec["max_size"],
            limiter,
            max_times_sampled=spec["max_times_sampled"],
            signature=self.make_signature(spec.get("signature")),
        )

    def make_signature(self, columns):
        if columns is None:
            return None
        try:
            from reverb.tensor_spec import TensorSpec
        except ImportError:
            from tensorflow import TensorSpec
        return {name: TensorSpec(shape, np.dtype(dtype)) for name, dtype, shape in columns}

    def step(self, op):
        """Returns the trace's entry for one op. An error is an entry too."""
        try:
            return getattr(self, f"op_{op['op']}")(op)
        except Exception as error:
            return {"error": [kind.__name__ for kind in type(error).__mro__], "text": str(error)}

    def op_insert(self, op):
        if not all(self.tables[table].can_insert(1) for table in op["priorities"] if table in self.tables):
            return "would wait"
        self.client.insert([np.int64(op["value"])], op["priorities"])
        return "inserted"

    def op_insert_leaves(self, op):
        self.client.insert([decode(leaf) for leaf in op["leaves"]], {op["table"]: 1.0})
        return "inserted"

    def op_sample(self, op):
        """Makes as many single draws as the limiter allows. Each is an entry."""
        drawn = []
        for _ in range(op["count"]):
            if not self.tables[op["table"]].can_sample(1):
                drawn.append("would wait")
                break
            [sample] = self.client.sample(op["table"], 1, emit_timesteps=False)
            drawn.append(self.describe(op["table"], sample))
        return drawn

    def op_sample_leaves(self, op):
        """Returns one item with all its columns."""
        [sample] = self.client.sample(op["table"], 1, emit_timesteps=op["emit_timesteps"])
        data = sample[0].data if op["emit_timesteps"] else sample.data
        return [encode(column) for column in data]

    def describe(self, table, sample):
        value = int(sample.data[0][0])
        # The key of an item must not change: the first key seen for a value is recorded, to notice another one.
        known = self.keys.setdefault(f"{table}/{value}", sample.info.key)
        return {
            "value": value,
            "same_key": known == sample.info.key,
            "probability": sample.info.probability,
            "table_size": sample.info.table_size,
            "priority": sample.info.priority,
            "times_sampled": sample.info.times_sampled,
            "shapes": [list(column.shape) for column in sample.data],
        }

    def op_mutate(self, op):
        known = lambda value: self.keys.get(f"{op['table']}/{value}")  # noqa: E731
        updates = {known(value): priority for value, priority in op["updates"] if known(value) is not None}
        deletes = [known(value) for value in op["deletes"] if known(value) is not None]
        self.client.mutate_priorities(op["table"], updates=updates, deletes=deletes)
        return [len(updates), len(deletes)]

    def op_mutate_unknown(self, op):
        unknown = next(key for key in range(10**6) if key not in self.keys.values())
        self.client.mutate_priorities(op["table"], updates={unknown: 1.0}, deletes=[unknown])
        return "ignored"

    def op_reset(self, op):
        self.client.reset(op["table"])
        return "reset"

    def op_can(self, op):
        """Returns the limiter's answers for counts up to 20."""
        table = self.tables[op["table"]]
        counts = range(1, 21)
        return [[table.can_sample(n) for n in counts], [table.can_insert(n) for n in counts]]

    def op_info(self, op):
        info = self.client.server_info()[op["table"]]
        limiter = info.rate_limiter_info
        return {
            "name": info.name,
            "sampler": info.sampler_options.SerializeToString(deterministic=True).hex(),
            "remover": info.remover_options.SerializeToString(deterministic=True).hex(),
            "max_size": info.max_size,
            "max_times_sampled": info.max_times_sampled,
            "limiter": limiter.SerializeToString(deterministic=True).hex(),
            "inserts": limiter.insert_stats.completed,
            "samples": limiter.sample_stats.completed,
            "current_size": info.current_size,
            "num_episodes": info.num_episodes,
            "num_deleted_episodes": info.num_deleted_episodes,
            "num_unique_samples": info.num_unique_samples,
            "has_signature": info.signature is not None,
        }

    def op_repr(self, op):
        return repr(self.tables[op["table"]])

    def op_table_error(self, op):
        """Makes a call or calls a constructor with arguments that must be refused."""
        calls = {
            "sample": lambda: next(self.client.sample("nowhere")),
            "insert": lambda: self.client.insert(1, {"nowhere": 1.0}),
            "insert nothing": lambda: self.client.insert(1, {}),
            "insert nan": lambda: self.client.insert(1, {op["table"]: float("nan")}),
            "reset": lambda: self.client.reset("nowhere"),
            "mutate": lambda: self.client.mutate_priorities("nowhere", updates={1: 1.0}),
            "zero samples": lambda: next(self.client.sample(op["table"], 0)),
            "minus two samples": lambda: next(self.client.sample(op["table"], -2)),
            "unpack": lambda: next(self.client.sample("nowhere", unpack_as_table_signature=True)),
            "empty name": lambda: self.reverb.Table.queue("", 1),
            "no room": lambda: self.reverb.Table.queue("q", 0),
            "no tables": lambda: self.reverb.Server(tables=[]),
            "min size": lambda: self.reverb.rate_limiters.MinSize(0),
            "small buffer": lambda: self.reverb.rate_limiters.SampleToInsertRatio(2.0, 1, 0.5),
            "high buffer": lambda: self.reverb.rate_limiters.SampleToInsertRatio(1.0, 1, (5.0, 9.0)),
            "no ratio": lambda: self.reverb.rate_limiters.SampleToInsertRatio(0.0, 1, 5.0),
            "bad key": lambda: self.client.mutate_priorities(op["table"], updates={-1: 1.0}),
            "None leaf": lambda: self.client.insert([None], {op["table"]: 1.0}),
        }
        calls[op["call"]]()
        return "no error"


def decode(leaf):
    """Converts a leaf of a scenario, bits or byte strings in hex, to a NumPy array."""
    if leaf["dtype"] == "bytes":
        flat = np.array([bytes.fromhex(item) for item in leaf["items"]] + [None], dtype=object)[:-1]
        return flat.reshape(leaf["shape"])
    return np.frombuffer(bytes.fromhex(leaf["hex"]), np.dtype(leaf["dtype"])).reshape(leaf["shape"])


def encode(column):
    """Converts a returned array back to a leaf of a scenario."""
    column = np.asarray(column)
    if column.dtype == object:
        return {"dtype": "bytes", "shape": list(column.shape), "items": [bytes(item).hex() for item in column.ravel()]}
    return {"dtype": column.dtype.name, "shape": list(column.shape), "hex": column.tobytes().hex()}


def main():
    scenarios = json.load(sys.stdin)
    # The logs of either side must not mix with the traces.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import reverb

    traces = []
    for scenario in scenarios:
        run = Run(reverb, scenario)
        traces.append([run.step(op) for op in scenario["ops"]])
        run.server.stop()
    json.dump(traces, out)
    out.close()
    with contextlib.suppress(AttributeError):
        sys.stdout.flush()


if __name__ == "__main__":
    main()
