"""Programs that are killed while they save: confirmed saves survive, and no incomplete checkpoint is loaded."""

import os
import random
import time

import pytest
from behaviour_support import program

import reverb
from reverb import checkpointers

# Number of kills per run; set REVERB_KILLS=200 for a long run.
KILLS = int(os.environ.get("REVERB_KILLS", "8"))

SAVER = """
    import sys, threading, numpy as np, reverb
    def table(name):
        fifo = reverb.selectors.Fifo
        return reverb.Table(name, fifo(), fifo(), 500, reverb.rate_limiters.MinSize(1))
    checkpointer = reverb.checkpointers.DefaultCheckpointer(sys.argv[1])
    server = reverb.Server([table("a"), table("b")], checkpointer=checkpointer)
    client = server.localhost_client()
    infos = client.server_info()
    count, of_b = (int(infos[name].rate_limiter_info.insert_stats.completed) for name in "ab")
    block = np.zeros(3000, np.uint8)
    # The kill may have come between the two tables of an insert.
    for value in range(of_b, count):
        client.insert([np.int64(value), block], {"b": 1.0})
    print("up", count, flush=True)
    def insert():
        global count
        while True:
            client.insert([np.int64(count), block], {"a": 1.0, "b": 1.0})
            count += 1
    threading.Thread(target=insert, daemon=True).start()
    while True:
        before = count
        path = client.checkpoint()
        print("saved", before, path, flush=True)
"""


@pytest.mark.timeout(60 + 10 * KILLS)
def test_saved_checkpoints_survive_a_kill_at_any_moment(tmp_path):
    choose = random.Random(0)
    confirmed = 0
    for _ in range(KILLS):
        with program(SAVER, str(tmp_path)) as saver:
            assert int(saver.line().split()[1]) >= confirmed
            time.sleep(choose.uniform(0.0, 0.4))
            # The kill may have truncated the last line.
            lines = [line.split() for line in saver.kill().splitlines()]
        said = [int(words[1]) for words in lines if len(words) == 3 and words[0] == "saved"]
        confirmed = max([confirmed, *said])
        if confirmed:
            check(tmp_path, confirmed)
    assert confirmed > 0


def check(root, confirmed):
    checkpoint = checkpointers.open(root)
    a, b = (checkpoint.table(name) for name in "ab")
    assert a.info.rate_limiter_info.insert_stats.completed >= confirmed
    for table in (a, b):
        values = [int(sample.data[0][0]) for sample in table]
        last = table.info.rate_limiter_info.insert_stats.completed
        assert values == list(range(max(0, last - 500), last)), "the newest items, in order, without a gap"


def test_the_next_server_removes_what_a_kill_left_behind(tmp_path):
    left = tmp_path / ".saving-2026-01-01T00:00:00.000000000+00:00"
    left.mkdir()
    (left / "items.tfrecord").write_bytes(b"half")
    table = reverb.Table.queue("table", 3)
    reverb.Server([table], checkpointer=checkpointers.DefaultCheckpointer(str(tmp_path))).stop()
    assert not left.exists()
