"""When a batch counts as received: once the program has it, and neither earlier nor much later."""

import os

import numpy as np
import pytest
from behaviour_support import (
    PATIENCE_S,
    eventually,
    info_of,
    insert_values,
    make_table,
    num_samples,
    program,
    run_program,
)
from receipt_support import take_batch

import reverb
from reverb import checkpointers, errors
from reverb.loaders import NumpyLoader

CONTEXTS = ["spawn", *(["fork", "forkserver"] if hasattr(os, "fork") else [])]


def queue():
    return reverb.Table.queue("table", 100)


def values_of(batch):
    return batch.data[0].ravel().tolist()


def rest_of(client):
    """Returns what a queue still gives, in order."""
    size = info_of(client).current_size
    return values_of(client.sample_batch("table", size, timeout=PATIENCE_S)) if size else []


def take_item(client):
    return [int(next(client.sample("table", 1, emit_timesteps=False)).data[0][0])]


def take_from_loader(client):
    with NumpyLoader(client, "table", batch_size=4) as loader:
        return values_of(next(loader))


TAKES = {"sample_batch": take_batch, "sample": take_item, "loader": take_from_loader}


class Interrupted(BaseException):
    """As Ctrl-C, whenever the test wants it."""


def interrupt(*_, **__):
    raise Interrupted


# Where a batch is made after it was drawn.
MAKERS = {
    "sample_batch": (reverb.Client, "maker"),
    "loader": (reverb.loaders.assembly.Assembly, "batch"),
}


@pytest.mark.parametrize("take", MAKERS)
def test_interrupt_after_the_draw_leaves_the_samples_in_the_table(serve, monkeypatch, tmp_path, take):
    def open_server():
        return serve(queue(), checkpointer=checkpointers.DefaultCheckpointer(str(tmp_path), save_on_stop=True))

    client = open_server()
    insert_values(client, range(10))
    reader = serve.connect()
    with monkeypatch.context() as patch:
        patch.setattr(*MAKERS[take], interrupt)
        with pytest.raises(Interrupted):
            TAKES[take](reader)
    assert TAKES[take](reader) == [0, 1, 2, 3]
    with monkeypatch.context() as patch:
        patch.setattr(*MAKERS[take], interrupt)
        with pytest.raises(Interrupted):
            TAKES[take](serve.connect())
    serve.stop()
    assert rest_of(open_server()) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("take", MAKERS)
def test_reader_that_is_killed_between_the_draw_and_the_return_loses_nothing(serve_far, take):
    client = serve_far(queue())
    insert_values(client, range(8))
    with program(
        f"""
        import sys, time, reverb
        from reverb.loaders import NumpyLoader
        from reverb.loaders.assembly import Assembly

        def stop_here(self, *arguments, **options):
            made = make(self, *arguments, **options)
            print("made", flush=True)
            time.sleep(60)
            return made

        client = reverb.Client(sys.argv[1])
        if {take!r} == "loader":
            make, Assembly.batch = Assembly.batch, stop_here
            next(NumpyLoader(client, "table", batch_size=4))
        else:
            make, reverb.Client.maker = reverb.Client.maker, stop_here
            client.sample_batch("table", 4)
        """,
        serve_far.address,
    ) as reader:
        assert reader.line() == "made"
        assert info_of(client).undelivered_samples >= 4
        reader.kill()
    eventually(lambda: info_of(client).current_size == 8)
    assert rest_of(client) == list(range(8))


@pytest.mark.parametrize("take", TAKES)
def test_receipts_leave_without_another_call(serve_far, take):
    client = serve_far(queue())
    insert_values(client, range(8))
    reader = serve_far.connect()
    taken = TAKES[take](reader)
    # This client does not wait for the receipts of that one.
    eventually(lambda: info_of(client).undelivered_samples == 0)
    assert num_samples(client) == len(taken)


def test_own_calls_see_what_was_received(serve_far):
    client = serve_far(make_table(max_times_sampled=2))
    client.insert_batch(np.arange(400), {"table": 1.0})
    with NumpyLoader(client, "table", batch_size=2, prefetch=0) as loader:
        for _ in range(50):
            client.sample_batch("table", 2)
            assert info_of(client).undelivered_samples == 0
            next(loader)
            assert info_of(client).undelivered_samples == 0
    client.sample_batch("table", 2)
    client.reset("table")
    assert (info_of(client).current_size, num_samples(client)) == (0, 0)


@pytest.mark.parametrize("take", TAKES)
def test_stop_waits_for_the_receipts_of_what_was_handed_over(serve, tmp_path, take):
    def open_server(number):
        folder = str(tmp_path / str(number))
        return serve(queue(), checkpointer=checkpointers.DefaultCheckpointer(folder, save_on_stop=True))

    for number in range(5):
        insert_values(open_server(number), range(8))
        taken = TAKES[take](serve.connect())
        serve.stop()
        assert rest_of(open_server(number)) == list(range(8))[len(taken) :]
        serve.stop()


def test_batch_that_arrives_during_a_stop_is_not_given(serve_far, tmp_path):
    checkpointer = checkpointers.DefaultCheckpointer(str(tmp_path), save_on_stop=True)
    client = serve_far(queue(), checkpointer=checkpointer)
    insert_values(client, range(8))
    reader = serve_far.connect()
    make = reader.maker

    def make_late(*arguments):
        serve_far.server.stop(returns=True)
        return make(*arguments)

    reader.sample_batch("table", 1)
    reader._makers.clear()
    reader.maker = make_late
    with pytest.raises(errors.UnavailableError):
        reader.sample_batch("table", 3)
    client = serve_far(queue(), checkpointer=checkpointers.DefaultCheckpointer(str(tmp_path)))
    assert rest_of(client) == list(range(1, 8))


ENDS = {
    "client": "print(*client.sample_batch('table', 4).data[0].ravel())",
    "dropped client": "print(*client.sample_batch('table', 4).data[0].ravel()); del client",
    "loader": "loader = NumpyLoader(client, 'table', batch_size=4); print(*next(loader).data[0].ravel())",
    "dropped loader": "print(*next(NumpyLoader(client, 'table', batch_size=4)).data[0].ravel()); del client",
    "thread": "t = threading.Thread(target=lambda: print(*client.sample_batch('table', 4).data[0].ravel())); t.start()",
}


@pytest.mark.parametrize("end", ENDS)
def test_samples_of_a_program_that_ends_at_once_do_not_go_back(serve_far, end):
    client = serve_far(queue())
    insert_values(client, range(20))
    read = []
    for _ in range(4):
        out, _ = run_program(
            f"import sys, threading, reverb\nfrom reverb.loaders import NumpyLoader\n"
            f"client = reverb.Client(sys.argv[1])\n{ENDS[end]}",
            serve_far.address,
        )
        read += [int(value) for value in out.split()]
    assert read == list(range(16))
    eventually(lambda: info_of(client).current_size == 4)
    assert rest_of(client) == list(range(16, 20))


CHILDREN_PROGRAM = """
    import multiprocessing, sys
    sys.path.insert(0, sys.argv[3])
    import reverb
    from receipt_support import put_batch, take_batch

    client = reverb.Client(sys.argv[1])
    print(*take_batch(client), flush=True)
    context = multiprocessing.get_context(sys.argv[2])
    results = context.Queue()
    for _ in range(2):
        child = context.Process(target=put_batch, args=(client, results))
        child.start()
        print(*results.get(), flush=True)
        child.join()
"""


@pytest.mark.parametrize("context", CONTEXTS)
def test_samples_of_a_child_process_that_ends_at_once_do_not_go_back(serve_far, context):
    """Children of a fork use the client of their parent, whose receipt of the first batch is due at the first fork."""
    client = serve_far(queue())
    insert_values(client, range(20))
    folder = os.path.dirname(__file__)
    out, _ = run_program(CHILDREN_PROGRAM, serve_far.address, context, folder, patience_s=50)
    assert [int(value) for value in out.split()] == list(range(12))
    assert rest_of(client) == list(range(12, 20))


def test_killed_parent_and_living_child_leave_what_the_parent_had_not_received(serve_far):
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    client = serve_far(queue())
    insert_values(client, range(8))
    with program(
        """
        import os, sys, time, reverb
        client = reverb.Client(sys.argv[1])
        make = reverb.Client.maker

        def fork_here(self, *arguments):
            if os.fork() == 0:
                os.close(1)
                time.sleep(0.3)
                os._exit(0)
            print("forked", flush=True)
            time.sleep(60)

        reverb.Client.maker = fork_here
        client.sample_batch("table", 4)
        """,
        serve_far.address,
    ) as reader:
        assert reader.line() == "forked"
        reader.kill()
    eventually(lambda: info_of(client).current_size == 8)
    assert rest_of(client) == list(range(8))


NEXT_PROGRAM = """
    import sys, time, reverb
    from reverb.loaders import NumpyLoader

    loader = NumpyLoader(sys.argv[1], "table", batch_size=4, receipt="next")
    for batch in loader:
        print(*batch.data[0].ravel(), flush=True)
        sys.stdin.readline()
"""


def test_learner_that_is_killed_in_its_step_gets_the_batch_again_with_receipt_next(serve_far):
    client = serve_far(queue())
    insert_values(client, range(20))
    with program(NEXT_PROGRAM, serve_far.address) as learner:
        for expected in ("0 1 2 3", "4 5 6 7", "8 9 10 11"):
            assert learner.line() == expected
            learner.process.stdin.write("\n")
            learner.process.stdin.flush()
        assert learner.line() == "12 13 14 15"
        eventually(lambda: info_of(client).undelivered_samples == 8)
        learner.kill()
    eventually(lambda: info_of(client).current_size == 8)
    assert rest_of(client) == list(range(12, 20))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_loader_with_receipt_next_that_is_closed_has_received_its_last_batch(serve, prefetch):
    client = serve(queue())
    insert_values(client, range(20))
    loader = NumpyLoader(serve.connect(), "table", batch_size=4, prefetch=prefetch, receipt="next")
    assert [values_of(next(loader)) for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    eventually(lambda: info_of(client).undelivered_samples == 4 + 4 * prefetch)
    loader.close()
    assert rest_of(client) == list(range(8, 20))


def test_receipt_must_be_known():
    with pytest.raises(ValueError, match="`receipt` must be 'now' or 'next', got 'later'"):
        NumpyLoader("localhost:1", "table", batch_size=3, receipt="later")
