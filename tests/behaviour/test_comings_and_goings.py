"""What a server and its clients log when somebody leaves, and when a long wait is over."""

import logging
import signal
import subprocess
import sys
import time

import pytest
from behaviour_support import PATIENCE_S, Background, eventually, insert_values, make_table, program

import reverb
from reverb import rate_limiters

CLIENT_PROGRAM = """
    import sys, threading, reverb
    from reverb.loaders import NumpyLoader
    client = reverb.Client(sys.argv[1])
    def write():
        writer = client.trajectory_writer(num_keep_alive_refs=1)
        writer.append([1])
        writer.create_item("full", 1.0, [writer.history[0][:]])
        writer.flush()
    def load():
        batches = NumpyLoader(client, "table", batch_size=5, prefetch=2)
        next(batches)
        threading.Event().wait()
    calls = {
        "loader": load,
        "draw": lambda: client.sample_batch("empty", 1),
        "insert": lambda: client.insert(1, {"full": 1.0}),
        "writer": write,
        "nothing": lambda: (client.server_info(), threading.Event().wait()),
        "end": lambda: client.sample_batch("table", 5),
    }
    print("begins", flush=True)
    calls[sys.argv[2]]()
    print("ends", flush=True)
"""
IN_FLIGHT = {
    "loader": "with 10 undelivered samples, which go back, in flight",
    "draw": "with 1 waiting draws in flight",
    "insert": "with 1 waiting inserts in flight",
    "writer": "with 1 waiting items of a writer in flight",
}


def messages(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "reverb"]


def of_waits(caplog):
    """Returns the messages of single waits. That the whole server is stalled may be logged beside them."""
    return [message for message in messages(caplog) if " waits: " in message or " goes on after " in message]


@pytest.fixture
def tables(serve_far):
    full = reverb.Table.queue("full", max_size=1)
    client = serve_far(reverb.Table.queue("table", max_size=100), reverb.Table.queue("empty", max_size=1), full)
    insert_values(client, range(50), table="table")
    insert_values(client, [0], table="full")
    return client


def in_flight(client, table, name):
    return getattr(client.server_info()[table], name)


STATES = {
    "loader": ("table", "undelivered_samples", 10),
    "draw": ("empty", "waiting_samples", 1),
    "insert": ("full", "waiting_inserts", 1),
    "writer": ("full", "waiting_inserts", 1),
}


@pytest.mark.parametrize("call", IN_FLIGHT)
def test_a_client_that_vanishes_is_logged_with_what_it_had_in_flight(serve_far, tables, caplog, call):
    table, name, number = STATES[call]
    with caplog.at_level(logging.INFO, logger="reverb"), program(CLIENT_PROGRAM, serve_far.address, call) as client:
        assert client.line() == "begins"
        eventually(lambda: in_flight(tables, table, name) == number)
        client.kill()
        eventually(lambda: messages(caplog))
        eventually(lambda: in_flight(tables, table, name) == 0)
    [message] = messages(caplog)
    assert f"has gone, {IN_FLIGHT[call]}" in message
    [record] = [record for record in caplog.records if record.name == "reverb"]
    assert record.fields["client"] in message


@pytest.mark.parametrize("call", ["nothing", "end"])
def test_a_client_that_leaves_nothing_behind_is_not_logged(serve_far, tables, caplog, call):
    with caplog.at_level(logging.INFO, logger="reverb"), program(CLIENT_PROGRAM, serve_far.address, call) as client:
        assert client.line() == "begins"
        if call == "nothing":
            client.kill()
        else:
            assert client.line() == "ends"
            client.process.wait(PATIENCE_S)
        time.sleep(0.5)
    assert not messages(caplog)


def test_a_server_that_stops_does_not_log_its_clients(serve_far, tables, caplog):
    with caplog.at_level(logging.INFO, logger="reverb"), program(CLIENT_PROGRAM, serve_far.address, "draw") as client:
        assert client.line() == "begins"
        eventually(lambda: in_flight(tables, "empty", "waiting_samples") == 1)
        serve_far.server.stop()
        client.process.wait(PATIENCE_S)
        time.sleep(0.5)
    assert not messages(caplog)


@pytest.mark.slow
def test_the_end_of_a_long_wait_is_logged(serve, caplog):
    client = serve(make_table("replay", limiter=rate_limiters.MinSize(2)), reverb.Table.queue("full", max_size=1))
    insert_values(client, [0], table="full")
    writer = serve.connect().trajectory_writer(num_keep_alive_refs=1)
    writer.append([1])
    with caplog.at_level(logging.INFO, logger="reverb"):
        waiting = [
            Background(serve.connect().sample_batch, "replay", 1),
            Background(serve.connect().insert, 1, {"full": 1.0}),
        ]
        eventually(lambda: len(of_waits(caplog)) == 2, patience_s=40)
        insert_values(client, [0, 1], table="replay")
        client.sample_batch("full", 1)
        for one in waiting:
            one.result()
        eventually(lambda: len(of_waits(caplog)) == 4)
    ends = of_waits(caplog)[2:]
    assert sum("sample of table `replay` goes on after 1" in message for message in ends) == 1
    assert sum("insert into table `full` goes on after 1" in message for message in ends) == 1


@pytest.mark.slow
def test_the_end_of_a_long_wait_of_a_writer_is_logged(serve, caplog):
    client = serve(reverb.Table.queue("full", max_size=1))
    insert_values(client, [0], table="full")
    writer = serve.connect().trajectory_writer(num_keep_alive_refs=1)
    writer.append([1])
    writer.create_item("full", 1.0, [writer.history[0][:]])
    with caplog.at_level(logging.INFO, logger="reverb"):
        waiting = Background(writer.flush)
        eventually(lambda: of_waits(caplog), patience_s=40)
        client.sample_batch("full", 1)
        waiting.result()
        eventually(lambda: "a writer goes on after 1" in of_waits(caplog)[-1])


SERVER_PROGRAM = """
    import logging, reverb
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    server = reverb.Server([reverb.Table.queue("queue", max_size=10)])
    print(server.port, flush=True)
    server.wait(returns=False)
"""


SLOW_LOG_PROGRAM = """
    import logging, sys, time, reverb

    def slow(record):
        time.sleep(2)
        return True

    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    # The lock of a handler, for which `logging` waits at exit, is not taken yet.
    logging.getLogger("reverb").addFilter(slow)
    checkpointer = reverb.checkpointers.DefaultCheckpointer(sys.argv[1])
    server = reverb.Server([reverb.Table.queue("queue", max_size=10)], checkpointer=checkpointer)
    server.localhost_client().checkpoint()
"""


def test_events_are_logged_before_the_interpreter_ends(tmp_path):
    # A thread that asks for the GIL later would abort the process.
    with program(SLOW_LOG_PROGRAM, str(tmp_path)) as server:
        logged = server.process.communicate(timeout=PATIENCE_S)[0]
    assert server.process.returncode == 0
    assert "checkpoint" in logged


@pytest.mark.parametrize(("number", "reason"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "Ctrl-C")])
def test_a_signal_that_ends_a_wait_is_logged(number, reason):
    with program(SERVER_PROGRAM) as server:
        port = server.line()
        time.sleep(0.3)
        server.process.send_signal(number)
        logged = server.process.communicate(timeout=PATIENCE_S)[1]
    assert f"port {port} stops because of {reason}" in logged


def test_a_signal_to_the_command_is_logged(tmp_path):
    file = tmp_path / "tables.toml"
    file.write_text("[tables.queue]\nqueue = 10\n")
    command = [sys.executable, "-c", "from reverb.cli import main; main()", "serve", str(file)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        next(line for line in process.stderr if "tables:" in line)
        time.sleep(0.3)
        process.terminate()
        assert "stops because of SIGTERM" in process.communicate(timeout=PATIENCE_S)[1]
    finally:
        process.kill()
        process.wait()


FULL_SERVER_PROGRAM = """
    import resource, reverb
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
    server = reverb.Server([reverb.Table.queue("queue", max_size=1000)], http_port="off")
    print(server.port, flush=True)
    server.wait(returns=False)
"""


def test_a_server_that_may_not_open_another_file_logs_why_and_serves_the_others():
    pytest.importorskip("resource")
    with program(FULL_SERVER_PROGRAM) as server:
        address = f"ipv4:127.0.0.1:{server.line()}"
        clients = []

        def connect_many():
            for _ in range(60):
                clients.append(reverb.Client(address))
                clients[-1].insert(1.0, {"queue": 1.0}, timeout=1)

        with pytest.raises(reverb.DeadlineExceededError):
            connect_many()
        clients[0].insert(2.0, {"queue": 1.0}, timeout=PATIENCE_S)
        assert clients[0].server_info()["queue"].current_size == len(clients)
        server.process.terminate()
        logged = server.process.communicate(timeout=PATIENCE_S)[1]
    assert "cannot accept a connection: Too many open files" in logged
    assert "Traceback" not in logged
