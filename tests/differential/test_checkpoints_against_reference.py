"""Each side loads what the other saves: data, priorities, times sampled, order, and the limiters' counts.

Each checkpoint is loaded by the other side, drawn from, and saved again there; its records must then be the same.
"""

import itertools

import numpy as np
import pytest
from both_sides import SIDES, answer_of
from checkpoint_records import records, saved
from driver import encode

pytestmark = [pytest.mark.reference, pytest.mark.timeout(400)]

SELECTORS = (["fifo"], ["lifo"], ["uniform"], ["prioritized", 0.7], ["min_heap"], ["max_heap"])
INTEGERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
# Dtypes that the reference accepts from NumPy. It accepts bfloat16, which the golden chunks have, from TensorFlow only.
DTYPES = ("?", *INTEGERS, "f2", "f4", "f8", "c8", "c16", "O")
SHAPES = ((), (1,), (3,), (2, 3), (0,), (2, 0))


def table(name, sampler=("fifo",), remover=("fifo",), limiter=("MinSize", 1), **options):
    return {
        "name": name,
        "sampler": list(sampler),
        "remover": list(remover),
        "limiter": list(limiter),
        "max_size": 20,
        "max_times_sampled": 0,
        **options,
    }


def leaf(dtype, shape, seed):
    random = np.random.default_rng(seed)
    size = int(np.prod(shape))
    if dtype == "O":
        texts = [bytes(random.integers(0, 256, random.integers(0, 9), np.uint8)) for _ in range(size)]
        return {"dtype": "bytes", "shape": list(shape), "items": [text.hex() for text in texts]}
    kind = np.dtype(dtype)
    values = random.integers(-100, 100, shape) if kind.kind != "?" else random.integers(0, 2, shape)
    return encode(np.asarray(values).astype(kind))


def numbers(table_names, count, start=0):
    """Items with distinct numbers, and priorities with ties."""
    return [
        {
            "op": "insert",
            "leaves": [encode(np.int64(value)), encode(np.full((2,), value, np.float32))],
            "priorities": dict.fromkeys(table_names, 1.0 + value % 4),
        }
        for value in range(start, start + count)
    ]


def all_dtypes():
    """Every dtype in every shape, each as an item of one column."""
    leaves = [leaf(*pair, seed) for seed, pair in enumerate(itertools.product(DTYPES, SHAPES))]
    fill = [{"op": "insert", "leaves": [one], "priorities": {"t": 1.0}} for one in leaves]
    return {"tables": [table("t", max_size=len(leaves))], "fill": fill}


def all_selectors():
    """Each selector in both roles, over the same items, some of them drawn and some evicted."""
    tables = [table(f"{kind[0]} {role}", **{role: kind}) for kind in SELECTORS for role in ("sampler", "remover")]
    names = [one["name"] for one in tables]
    samples = [{"op": "sample", "table": name, "count": 7} for name in names]
    return {"tables": tables, "fill": [*numbers(names, 15), *samples, *numbers(names, 10, start=15)]}


def limiter_states():
    """Limiters between their bounds, at them, and below their minimum size."""
    limiters = {
        "ratio": ["SampleToInsertRatio", 2.0, 3, 9.0],
        "bounds": ["RateLimiter", 1.5, 2, -4.0, 100.0],
        "empty": ["MinSize", 5],
        "below": ["MinSize", 5],
        "at": ["MinSize", 3],
    }
    tables = [table(name, limiter=limiter, is_drawn=False) for name, limiter in limiters.items()]
    tables.append({"name": "queue", "kind": "queue", "max_size": 5, "sampler": ["fifo"], "is_drawn": False})
    tables.append(table("sampled out", ["fifo"], max_times_sampled=2))
    fill = numbers(["ratio", "bounds", "at"], 4) + numbers(["below"], 2) + numbers(["queue"], 5)
    fill += [
        {"op": "sample", "table": name, "count": count} for name, count in (("ratio", 7), ("bounds", 8), ("queue", 2))
    ]
    fill += [*numbers(["sampled out"], 6), {"op": "sample", "table": "sampled out", "count": 5}]
    fill += [{"op": "delete_first", "table": "at", "count": 2}]
    return {"tables": tables, "fill": fill}


def signatures():
    columns = [["a", "int64", []], ["b", "float32", [2]]]
    return {"tables": [table("t", signature=columns), table("empty", signature=columns)], "fill": numbers(["t"], 3)}


def batches():
    leaves = [encode(np.arange(12, dtype=np.int32).reshape(6, 2)), encode(np.arange(6, dtype=np.float64))]
    return {"tables": [table("t")], "fill": [{"op": "batch", "leaves": leaves, "priorities": {"t": 2.0}}]}


def writers():
    """Steps in many chunks, with and without delta encoding; columns that differ in length; one without a time axis."""
    options = itertools.product((1, 3, 4), (False, True))
    fill, tables = [], []
    for chunk_length, delta in options:
        name = f"writer {chunk_length} {delta}"
        tables.append(table(name, max_size=100))
        fill.append(
            {"op": "writer", "table": name, "length": 4, "steps": 9, "chunk_length": chunk_length, "delta": delta}
        )
    tables.append(table("trajectories", ["uniform"]))
    fill.append({"op": "trajectories", "table": "trajectories", "length": 3, "steps": 8})
    return {"tables": tables, "fill": fill}


def delta_code():
    """Every dtype with delta encoding, in rows with and without a shape; integers at their limits."""
    columns = []
    for dtype in DTYPES:
        shapes = [(), (2,), (2, 3)]
        columns += [[leaf(dtype, shape, (step, len(shape))) for step in range(7)] for shape in shapes]
    for dtype in INTEGERS:
        ends = np.iinfo(dtype)
        values = [ends.min, ends.max, 0, ends.max, ends.min, 1, ends.max]
        columns.append([encode(np.full((2,), value, dtype)) for value in values])
    rows = [list(row) for row in zip(*columns, strict=True)]
    fill, tables = [], []
    for chunk_length in (2, 3, 5):
        name = f"delta {chunk_length}"
        tables.append(table(name))
        fill.append({"op": "rows", "table": name, "length": 5, "chunk_length": chunk_length, "rows": rows})
    return {"tables": tables, "fill": fill}


def trajectory_options():
    """Columns with different chunk lengths; steps that come in parts, or lack columns; several episodes."""
    fill, tables = [], []
    for lengths in ({}, {"a": 1, "b": 1}, {"a": 4, "b": 1}, {"a": 2, "b": 3}, {"a": None, "b": 2}):
        for episode in (100, 5):
            name = f"trajectories {' '.join(map(str, lengths.values()))} {episode}"
            tables.append(table(name))
            options = {"chunk_lengths": lengths, "episode": episode, "steps": 12}
            fill.append({"op": "columns", "table": name, **options})
    return {"tables": tables, "fill": fill}


def structured():
    """Items that patterns make, over one table and over two."""
    tables = [table(name, max_size=50) for name in ("windows", "n step", "ends")]
    patterns = [
        {"table": "windows", "pattern": {"a": ["a", -3, None]}, "conditions": []},
        {"table": "n step", "pattern": {"first": ["a", -4], "last": ["b", -1], "apart": ["b", -2, -1]}},
        {"table": "ends", "pattern": {"all": ["a", -2, None]}, "conditions": ["end"]},
    ]
    return {"tables": tables, "fill": [{"op": "patterns", "patterns": patterns, "steps": 11, "episode": 5}]}


def large():
    """Chunks that stay encoded until they are read if they compress: some do, some only as deltas."""
    steps = np.arange(20_000, dtype=np.int32)
    noise = np.random.default_rng(0).integers(0, 1 << 30, 20_000, np.int32)
    columns = [steps // 100, noise, np.zeros(100_000, np.uint8)]
    fill = [{"op": "insert", "leaves": [encode(column)], "priorities": {"t": 1.0}} for column in columns]
    rows = [[encode(noise + step)] for step in range(6)]
    fill.append({"op": "rows", "table": "delta", "length": 3, "chunk_length": 3, "rows": rows})
    return {"tables": [table("t"), table("delta")], "fill": fill}


SCENARIOS = {
    "dtypes": all_dtypes,
    "selectors": all_selectors,
    "limiters": limiter_states,
    "signatures": signatures,
    "batches": batches,
    "writers": writers,
    "delta code": delta_code,
    "trajectory options": trajectory_options,
    "structured": structured,
    "large": large,
}


def run(side, jobs):
    answer = answer_of(side, "checkpoint_driver.py", jobs)
    assert answer["package"] == {"reference": "dm-reverb", "ours": "reverb-replay"}[side]
    return answer["results"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """For each side that saves and each scenario: what the saver saw, and what the loader saw."""
    root = tmp_path_factory.mktemp("checkpoints")
    first, second = {}, {}
    for side in SIDES:
        jobs = [{**SCENARIOS[name](), "root": str(root / side / name)} for name in SCENARIOS]
        first[side] = dict(zip(SCENARIOS, run(side, jobs), strict=True))
    for side, other in (SIDES, SIDES[::-1]):
        jobs = [
            {
                "tables": SCENARIOS[name]()["tables"],
                "root": str(root / "again" / side / name),
                "from": first[side][name]["path"],
            }
            for name in SCENARIOS
        ]
        second[side] = dict(zip(SCENARIOS, run(other, jobs), strict=True))
    return {side: {name: (first[side][name], second[side][name]) for name in SCENARIOS} for side in SIDES}


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("side", SIDES)
class TestCheckpointOf:
    def test_is_loaded_by_the_other_side(self, results, side, scenario):
        first, second = results[side][scenario]
        if (side, scenario) == ("ours", "batches"):
            # Each row of a batch is an episode in ours; the reference has one episode per chunk.
            for infos in (first["infos"], second["infos"]):
                infos["t"].pop("num_episodes")
        assert second["infos"] == first["infos"]
        assert second["drawn"].keys() == first["drawn"].keys()
        for name in first["drawn"]:
            draws = zip(first["drawn"][name], second["drawn"][name], strict=True)
            for position, ((key, priority, times, probability, data), other) in enumerate(draws):
                # How often a random item was drawn when first seen depends on chance; the records hold it.
                is_random = "uniform" in name or "prioritized" in name or name == "trajectories"
                assert other[0] == key, (name, position)
                assert other[1] == priority, (name, position)
                assert is_random or other[2] == times, (name, position)
                assert is_random or other[3] == probability, (name, position)
                assert other[4] == data, (name, position)

    def test_is_saved_again_with_the_same_records(self, results, side, scenario):
        first, second = results[side][scenario]
        tables, items, chunks = saved(first["path"])
        tables_again, items_again, chunks_again = saved(second["path"])
        assert tables_again == tables
        assert items_again == items
        assert chunks_again == chunks
        assert chunks


def test_a_difference_is_noticed(results):
    first, second = results["ours"]["selectors"]
    assert saved(first["path"]) == saved(second["path"])
    tables, items, _ = saved(first["path"])
    item = next(item for items_of_one in items.values() for item in items_of_one if item.get("timesSampled"))
    item["timesSampled"] += 1
    assert items != saved(second["path"])[1]
    assert any(one["rateLimiter"].get("sampleCount") for one in tables.values())


def test_the_reference_has_written_what_the_scenarios_are_for(results):
    from reverb.cc import schema_pb2

    def messages(scenario, kind, file):
        return [kind.FromString(one) for one in records(results["reference"][scenario][0]["path"], file)]

    deltas = [chunk for chunk in messages("delta code", schema_pb2.ChunkData, "chunks.tfrecord") if chunk.delta_encoded]
    assert {len(chunk.data.tensors) for chunk in deltas} == {3 * len(DTYPES) + len(INTEGERS)}
    chunks = messages("trajectory options", schema_pb2.ChunkData, "chunks.tfrecord")
    rows = {chunk.data.tensors[0].tensor_shape.dim[0].size for chunk in chunks}
    assert rows >= {1, 2, 3, 4}
    assert any(chunk.sequence_range.sparse for chunk in chunks)
    items = messages("trajectory options", schema_pb2.PrioritizedItem, "items.tfrecord")
    columns = [column for item in items for column in item.flat_trajectory.columns]
    assert {column.squeeze for column in columns} == {False, True}
    assert any(len(column.chunk_slices) > 1 for column in columns)
    tables = {item.table for item in messages("structured", schema_pb2.PrioritizedItem, "items.tfrecord")}
    assert tables == {"windows", "n step", "ends"}
