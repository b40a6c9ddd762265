"""Forks: a child can use the parent's clients, and leaves the parent's server alone."""

import sys

import pytest
from behaviour_support import run_program

pytestmark = pytest.mark.skipif(not hasattr(sys.modules["os"], "fork"), reason="no fork on this platform")

START = """
    import multiprocessing, os, sys, warnings
    import numpy, reverb

    warnings.simplefilter("ignore")  # Python warns of forks in a program with threads.
    server = reverb.Server(tables=[reverb.Table.queue("table", max_size=100), reverb.Table.queue("back", max_size=100)])
    ADDRESSES = {
        "same_process": f"localhost:{server.port}",
        "unix": f"unix:{server.unix_path}",
        "tcp": f"ipv4:127.0.0.1:{server.port}",
    }
    client = reverb.Client(ADDRESSES[sys.argv[1]])

    def values(table, count):
        return client.sample_batch(table, count, timeout=30, squeeze_time=True).data[0].tolist()

    def insert(table, *numbers):
        client.insert_batch(numpy.array(numbers), {table: 1.0}, timeout=30)
"""


def test_client_used_before_a_fork_works_in_child_and_parent(road):
    run_program(
        START
        + """
    insert("table", 1, 2)
    assert values("table", 1) == [1]

    def child():
        assert client.road != "same_process" or client.server_info()
        assert values("table", 1) == [2]
        assert client.road != "same_process"
        insert("back", 10, 11)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(50)
    assert process.exitcode == 0, process.exitcode
    assert values("back", 2) == [10, 11]
    insert("table", 3)
    assert values("table", 1) == [3]
    """,
        road,
    )


@pytest.mark.parametrize("ending", ["os._exit(0)", "sys.exit(0)", "server.stop(); os._exit(0)"])
def test_child_that_ends_leaves_the_parents_server_running(road, ending):
    run_program(
        START
        + f"""
    insert("table", 1)
    pid = os.fork()
    if pid == 0:
        {ending}
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    assert server.unix_path is None or os.path.exists(server.unix_path)
    insert("table", 2)
    assert values("table", 2) == [1, 2]
    assert reverb.Client(ADDRESSES["unix"]).server_info()
    assert reverb.Client(ADDRESSES["tcp"]).server_info()
    """,
        road,
    )


def test_child_can_have_a_server_of_its_own(road):
    run_program(
        START
        + """
    insert("table", 1)
    pid = os.fork()
    if pid == 0:
        own = reverb.Server(tables=[reverb.Table.queue("table", max_size=100)])
        mine = own.localhost_client()
        mine.insert(numpy.int64(5), {"table": 1.0})
        assert mine.sample_batch("table", 1, timeout=30, squeeze_time=True).data[0].tolist() == [5]
        assert mine.road == "same_process"
        own.stop()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert values("table", 1) == [1]
    """,
        road,
    )


def test_parent_serves_while_many_children_work(road):
    run_program(
        START
        + """
    client.server_info()

    def child(number):
        for step in range(50):
            insert("table", 100 * number + step)

    context = multiprocessing.get_context("fork")
    children = [context.Process(target=child, args=(number,)) for number in range(4)]
    for process in children:
        process.start()
    got = values("table", 200)
    for process in children:
        process.join(50)
        assert process.exitcode == 0
    assert sorted(got) == sorted(100 * number + step for number in range(4) for step in range(50))
    """,
        road,
    )


def test_spawned_processes_take_a_pickled_client(serve_far):
    client = serve_far(__import__("reverb").Table.queue("table", max_size=10))
    import pickle

    run_program(
        """
        import pickle, sys, numpy
        client = pickle.loads(bytes.fromhex(sys.argv[1]))
        client.insert(numpy.int64(4), {"table": 1.0})
        """,
        pickle.dumps(client).hex(),
    )
    assert client.sample_batch("table", 1, timeout=30, squeeze_time=True).data[0].tolist() == [4]
