"""Saves and loads checkpoints with the `reverb` of whichever interpreter runs this file, and prints what was seen.

    python checkpoint_driver.py < jobs.json > results.json

A job has `tables` (as in driver.py), `root`, and either `fill`, a list of ops by which the tables are filled, or
`from`, a checkpoint that is loaded. Either way the tables are then saved under `root`, and drawn from until all is
known. The result has the path of the checkpoint, the tables' infos as they were saved, and what was drawn.
"""

import json
import os
import sys

import numpy as np
from driver import Run, decode, encode

DRAWS = 40


class Job(Run):
    """One job.

    Args:
      reverb: Module under test.
      job: Job as described above.
    """

    def __init__(self, reverb, job):
        self.reverb = reverb
        self.job = job
        self.keys = {}
        self.tables = {spec["name"]: self.make_table(spec) for spec in job["tables"]}
        checkpointer = reverb.checkpointers.DefaultCheckpointer(job["root"], fallback_checkpoint_path=job.get("from"))
        self.server = reverb.Server(tables=list(self.tables.values()), checkpointer=checkpointer)
        self.client = self.server.localhost_client()

    def run(self):
        for op in self.job.get("fill", ()):
            getattr(self, f"fill_{op['op']}")(op)
        path = self.client.checkpoint()
        infos = {spec["name"]: self.op_info({"table": spec["name"]}) for spec in self.job["tables"]}
        drawn = {spec["name"]: self.draw_all(spec) for spec in self.job["tables"] if spec.get("is_drawn", True)}
        self.server.stop()
        return {"path": path, "infos": infos, "drawn": drawn}

    def fill_insert(self, op):
        self.client.insert([decode(leaf) for leaf in op["leaves"]], op["priorities"])

    def fill_batch(self, op):
        """Inserts the rows of a batch, one by one if there is no call for all."""
        columns = [decode(leaf) for leaf in op["leaves"]]
        if hasattr(self.client, "insert_batch"):
            self.client.insert_batch(columns, op["priorities"])
            return
        for row in zip(*columns):  # noqa: B905 - Python 3.9 has no `strict`.
            self.client.insert(list(row), op["priorities"])

    def fill_writer(self, op):
        """Writes overlapping items with a writer that appends whole steps."""
        with self.client.writer(op["length"], chunk_length=op["chunk_length"], delta_encoded=op["delta"]) as writer:
            for step in range(op["steps"]):
                writer.append([np.int32([step, -step]), np.float32(step)])
                if step >= op["length"] - 1:
                    writer.create_item(op["table"], op["length"], float(step))
            writer.flush()

    def fill_trajectories(self, op):
        """Writes items whose columns differ in length, one of them without a time axis."""
        with self.client.trajectory_writer(op["length"]) as writer:
            for step in range(op["steps"]):
                writer.append({"a": np.full((2,), step, np.float32), "b": np.int64(step), "s": f"step {step}"})
                if step >= op["length"] - 1:
                    history = writer.history
                    trajectory = {
                        "a": history["a"][-op["length"] :],
                        "last": history["b"][-1],
                        "s": history["s"][-2:],
                        "apart": history["b"][-1:],
                    }
                    writer.create_item(op["table"], float(step), trajectory)
            writer.flush()

    def fill_rows(self, op):
        """Writes overlapping items of given steps, with delta encoding."""
        writer = self.client.writer(op["length"], chunk_length=op["chunk_length"], delta_encoded=True)
        with writer:
            for step, row in enumerate(op["rows"]):
                writer.append([decode(leaf) for leaf in row])
                if step >= op["length"] - 1:
                    writer.create_item(op["table"], op["length"], float(step))
            writer.flush()

    def fill_columns(self, op):
        """Writes items of two separately chunked columns, whose steps come in two parts. Every third lacks one."""
        with self.client.trajectory_writer(4) as writer:
            writer.append({"a": np.zeros((2,), np.float32), "b": np.int64(0)})
            writer.end_episode()
            for name, length in op["chunk_lengths"].items():
                writer.configure((name,), num_keep_alive_refs=4, max_chunk_length=length)
            for step in range(1, op["steps"]):
                a = np.full((2,), step, np.float32)
                if step % 3:
                    writer.append({"a": a}, partial_step=True)
                    writer.append({"b": np.int64(step)})
                else:
                    writer.append({"a": a})
                history = writer.history
                trajectory = {"a": history["a"][-2:] if writer.episode_steps > 1 else history["a"][-1:]}
                if step % 3:
                    trajectory.update(b=history["b"][-1:], squeezed=history["b"][-1])
                    writer.create_item(op["table"], float(step), trajectory)
                if step % op["episode"] == 0:
                    writer.end_episode()
            writer.flush()

    def fill_patterns(self, op):
        """Writes items with a structured writer."""
        structured = self.reverb.structured_writer
        reference = structured.create_reference_step({"a": 0, "b": 0})
        configs = []
        for spec in op["patterns"]:
            pattern = {name: at(reference[column], *index) for name, (column, *index) in spec["pattern"].items()}
            ends = [structured.Condition.is_end_episode()] if "end" in spec.get("conditions", ()) else []
            configs.append(structured.create_config(pattern, spec["table"], ends))
        writer = self.client.structured_writer(configs)
        for step in range(op["steps"]):
            writer.append({"a": np.full((3,), step, np.int16), "b": np.float64(step)})
            if step % op["episode"] == op["episode"] - 1:
                writer.end_episode()
        writer.flush()

    def fill_sample(self, op):
        for _ in self.client.sample(op["table"], op["count"], emit_timesteps=False):
            pass

    def fill_delete_first(self, op):
        for _ in range(op["count"]):
            [sample] = self.client.sample(op["table"], 1, emit_timesteps=False)
            self.client.mutate_priorities(op["table"], deletes=[sample.info.key])

    def draw_all(self, spec):
        """Returns items in draw order if the table draws in order, deleting each item once drawn; else by key."""
        in_order = spec["sampler"][0] not in ("uniform", "prioritized")
        size = self.client.server_info()[spec["name"]].current_size
        found, order = {}, []
        while len(found) < size:
            count = 1 if in_order else DRAWS * size
            for sample in self.client.sample(spec["name"], count, emit_timesteps=False):
                key = sample.info.key
                if key not in found:
                    found[key] = [
                        str(key),
                        sample.info.priority,
                        sample.info.times_sampled,
                        round(sample.info.probability, 12),
                        [encode(column) for column in sample.data],
                    ]
                    order.append(key)
                if in_order:
                    self.client.mutate_priorities(spec["name"], deletes=[key])
        return [found[key] for key in (order if in_order else sorted(found))]


def at(column, first, *last):
    """A cell of a reference step, or cells from `first` to `last`."""
    return column[slice(first, *last)] if last else column[first]


def main():
    jobs = json.load(sys.stdin)
    # The logs of either side must not mix with the results.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import reverb

    # The caller must know which of the two packages was found.
    package = "reverb-replay" if hasattr(reverb, "buffers") else "dm-reverb"
    json.dump({"package": package, "results": [Job(reverb, job).run() for job in jobs]}, out)
    out.close()


if __name__ == "__main__":
    main()
