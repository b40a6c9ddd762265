"""Both sides' clients work with both sides' servers: what either writes, either reads, bit for bit."""

import pytest
from matrix_comparison import differences
from matrix_processes import PATIENCE_S
from sides import SIDES

pytestmark = [pytest.mark.reference, pytest.mark.timeout(3 * PATIENCE_S)]

SHARED = (
    *("insert", "insert nest", "insert large", "writer 1", "writer 2", "writer 3 delta", "writer 2 delta"),
    *("writer default delta", "writer sequence", "trajectory 1", "trajectory 3", "trajectory columns"),
    *("trajectory many", "structured", "tf client"),
)
OWN = (
    "insert batch",
    "batched writer",
    "compressed lz4",
    "compressed zstd delta",
    "compressed auto",
    "strided",
    "ml_dtypes",
)
WRITTEN = [("reference", case) for case in SHARED] + [("ours", case) for case in (*SHARED, *OWN)]
WAYS = ("sample", "sample timesteps", "TrajectoryDataset", "TimestepDataset", "TFClient")
READ = [("reference", way) for way in WAYS] + [("ours", way) for way in (*WAYS, "sample_batch", "loader")]

# Cases whose columns differ in length, or lack a time axis: their items have no steps.
WITHOUT_STEPS = ("trajectory columns", "structured", "batched writer", "compressed lz4", "compressed zstd delta")
WITHOUT_STEPS += ("compressed auto",)
# Cases with dtypes that the reference's binding cannot convert to NumPy.
ONLY_TENSORS = ("tf client", "ml_dtypes")


def can(case, reader):
    side, way = reader
    if case in WITHOUT_STEPS and way in ("sample timesteps", "TimestepDataset", "TFClient"):
        return False
    return not (side == "reference" and case in ONLY_TENSORS and way.startswith("sample"))


def name_of(value):
    return value if isinstance(value, str) else " ".join(value)


@pytest.mark.parametrize(
    ("written", "reader"),
    [(written, reader) for written in WRITTEN for reader in READ if can(written[1], reader)],
    ids=name_of,
)
@pytest.mark.parametrize("server", SIDES)
def test_items_are_read_as_they_were_written(processes, server, written, reader):
    (writer, case), (side, way) = written, reader
    address = processes.address(server)
    processes.servers[server].call("clear", name="matrix", tables=["once"])
    expected = processes.clients[writer].call("write", case=case, address=address, table="once")
    dtypes = [dtype for dtype, _, _ in expected[0]["columns"]]
    read = {"way": way, "address": address, "table": "once", "count": len(expected), "dtypes": dtypes}
    items = processes.clients[side].call("read", **read)
    assert not differences(expected, items)
    assert processes.servers[server].call("sizes", name="matrix")["once"] == 0
