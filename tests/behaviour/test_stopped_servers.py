"""What clients in other processes see when a server ends: it was stopped for good, or it will be back."""

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from behaviour_support import PATIENCE_S, Background, comes_true, program

import reverb
from reverb import errors
from reverb.loaders import NumpyLoader

pytestmark = pytest.mark.ports

# The first argument is the code that ends the program, the second the folder of its checkpoints, the third the port.
SERVER_PROGRAM = """
    import os, signal, sys, threading, reverb
    code, folder, port = sys.argv[1:4]
    options = {}
    if folder:
        options["checkpointer"] = reverb.checkpointers.DefaultCheckpointer(folder, save_on_stop=True)
    def serve():
        tables = [reverb.Table.queue("queue", max_size=10), reverb.Table.queue("full", max_size=1)]
        made = reverb.Server(tables, port=int(port or 0), **options)
        print(made.port, made.unix_path, flush=True)
        return made
    def asked():
        sys.stdin.readline()
    exec(code)
"""
TERMINATE = "threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()"
IN_FUNCTION = "def main():\n  server = serve(); asked(); {}\nmain()"
# What ends the program; and its exit status, or None if it goes on.
FOR_GOOD = {
    "stop": ("server = serve(); asked(); server.stop(); sys.stdin.read()", None),
    "end": ("server = serve(); asked()", 0),
    "end of a function": (IN_FUNCTION.format("pass"), 0),
    "exit 0": ("server = serve(); asked(); sys.exit()", 0),
    "exit 0 in a function": (IN_FUNCTION.format("sys.exit(0)"), 0),
    "block": (f"with serve() as server: asked(); {TERMINATE}; server.wait()", 143),
    "error in a block": ("with serve() as server: asked(); raise ValueError", 1),
    "wait": (f"server = serve(); asked(); {TERMINATE}; server.wait(returns=False)", 143),
    "variable": (f"os.environ['REVERB_RETURNS'] = '0'; server = serve(); asked(); {TERMINATE}; server.wait()", 143),
    "error with the variable": ("os.environ['REVERB_RETURNS'] = '0'; server = serve(); asked(); raise ValueError", 1),
}
RETURNS = {
    "stop": ("server = serve(); asked(); server.stop(returns=True); sys.stdin.read()", None),
    "exit 1": ("server = serve(); asked(); sys.exit(1)", 1),
    "exit 1 in a function": (IN_FUNCTION.format("raise SystemExit('failed')"), 1),
    "error": ("server = serve(); asked(); raise ValueError", 1),
    "error in a function": (IN_FUNCTION.format("raise ValueError"), 1),
    "wait": (f"server = serve(); asked(); {TERMINATE}; server.wait()", 143),
    "wait in a block": (f"with serve() as server: asked(); {TERMINATE}; server.wait(returns=True)", 143),
    "killed": ("server = serve(); asked(); os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
}
SAVING = {
    "end": (*FOR_GOOD["end"], True),
    "end of a function": (*FOR_GOOD["end of a function"], True),
    "exit 1": (*RETURNS["exit 1"], False),
    "exit 1 in a function": (*RETURNS["exit 1 in a function"], False),
    "wait": (RETURNS["wait"][0], 143, False),
}


def write(client, **options):
    writer = client.trajectory_writer(num_keep_alive_refs=1, **options)
    writer.append([1])
    writer.create_item("full", 1.0, [writer.history[0][:]])
    writer.flush()


# Calls that look for a lost server for 300 s.
PERSISTENT_CALLS = {
    "sample": lambda client: next(client.sample("queue", emit_timesteps=False)).data[0][0],
    "loader": lambda client: np.ravel(next(NumpyLoader(client, "queue", batch_size=1)).data[0])[0],
    "writer": write,
}
WAITING_CALLS = {
    **PERSISTENT_CALLS,
    "sample_batch": lambda client: client.sample_batch("queue", 1),
    "insert": lambda client: client.insert(1, {"full": 1.0}),
    "insert_batch": lambda client: client.insert_batch(np.ones(1), {"full": 1.0}),
}
# Calls that need no wait, of a client that has done nothing since the server has ended.
OTHER_CALLS = {
    "update_priorities": lambda client: client.mutate_priorities("queue", {1: 1.0}),
    "reset": lambda client: client.reset("queue"),
    "server_info": lambda client: client.server_info(timeout=60),
    "checkpoint": lambda client: client.checkpoint(),
}


@pytest.fixture(params=["unix", "tcp"])
def far_client(request):
    """Makes clients of a running server program."""

    def connect(server):
        port, path = server.line().split()

        def make():
            client = reverb.Client(f"unix:{path}" if request.param == "unix" else f"ipv4:127.0.0.1:{port}")
            client.server_info()
            return client

        return make, port

    return connect


def begin(calls, make):
    make().insert(0, {"full": 1.0})
    waiting = {name: Background(call, make()) for name, call in calls.items()}
    assert not comes_true(lambda: not all(one.is_running for one in waiting.values()), patience_s=0.5)
    return waiting


def end(server, status):
    server.process.stdin.write("end\n")
    server.process.stdin.flush()
    if status is not None:
        assert server.process.wait(PATIENCE_S) == status


def is_served(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


def check_stopped(call, *args):
    with pytest.raises(errors.ServerStoppedError) as stopped:
        call(*args)
    assert not isinstance(stopped.value, errors.UnavailableError)
    assert not stopped.value.is_transient
    return stopped.value


@pytest.mark.parametrize("ending", FOR_GOOD)
def test_a_stop_for_good_ends_calls_in_other_processes(far_client, ending):
    code, status = FOR_GOOD[ending]
    with program(SERVER_PROGRAM, code, "", "") as server:
        make, port = far_client(server)
        waiting = begin(WAITING_CALLS, make)
        clients = {name: make() for name in OTHER_CALLS}
        end(server, status)
        raised = {name: check_stopped(one.result) for name, one in waiting.items()}
        assert "1 items were not confirmed (1 for table `full`)" in str(raised["writer"])
        assert "Error when confirming" in str(raised["insert"])
        for name, call in OTHER_CALLS.items():
            check_stopped(call, clients[name])
        # The verdict of the first call is not kept, and is the same.
        client = clients["server_info"]
        check_stopped(client.sample_batch, "queue", 1)
        check_stopped(PERSISTENT_CALLS["sample"], client)
        check_stopped(client.server_info)
    with program(SERVER_PROGRAM, "server = serve(); asked()", "", port) as again:
        again.line()
        client.insert(7, {"queue": 1.0})
        assert PERSISTENT_CALLS["sample"](client) == 7
        write(client)


@pytest.mark.parametrize("code", ["stop", "block"])
def test_a_batch_that_went_back_as_the_server_stopped_for_good_is_no_lost_server(far_client, code):
    with program(SERVER_PROGRAM, FOR_GOOD[code][0], "", "") as server:
        make, _ = far_client(server)
        client = make()
        client.insert(7, {"queue": 1.0})
        end_once = []

        class Engine:
            """Hands a batch over when the server, which waits for receipts at its stop, has taken the samples back."""

            def __init__(self, engine):
                self._engine = engine

            def sample(self, *arguments):
                drawn = self._engine.sample(*arguments)
                if not end_once:
                    end_once.append(end(server, None))
                    assert comes_true(drawn[1].is_lost, PATIENCE_S)
                return drawn

            def __getattr__(self, name):
                return getattr(self._engine, name)

        client.engine = Engine(client.engine)
        check_stopped(client.sample_batch, "queue", 1)
        assert end_once


def test_a_second_draw_has_what_is_left_of_the_timeout(serve):
    client = serve(reverb.Table.queue("queue", max_size=10))
    timeouts = []

    class Lost:
        """A draw whose samples have gone back."""

        def received(self):
            raise errors.UnavailableError("the server stops")

        def is_lost(self):
            return True

        def give_back(self):
            pass

    class Engine:
        def __init__(self, engine):
            self._engine = engine

        def sample(self, table, at_least, at_most, ahead, timeout, squeeze_time):
            timeouts.append(timeout)
            if len(timeouts) > 1:
                return self._engine.sample(table, at_least, at_most, ahead, timeout, squeeze_time)
            time.sleep(0.2)
            return self._engine.sample(table, 1, 1, 0, timeout, squeeze_time)[0], Lost()

        def __getattr__(self, name):
            return getattr(self._engine, name)

    client.insert_batch(np.ones(2), {"queue": 1.0})
    client.engine = Engine(client.engine)
    client.sample_batch("queue", 1, timeout=PATIENCE_S)
    assert timeouts[0] == PATIENCE_S
    assert timeouts[1] <= PATIENCE_S - 0.2


@pytest.mark.parametrize("ending", RETURNS)
def test_calls_in_other_processes_wait_for_a_server_that_will_be_back(far_client, ending):
    code, status = RETURNS[ending]
    with program(SERVER_PROGRAM, code, "", "") as server:
        make, port = far_client(server)
        waiting = begin(WAITING_CALLS, make)
        end(server, status)
        for name in WAITING_CALLS.keys() - PERSISTENT_CALLS.keys():
            with pytest.raises(errors.UnavailableError):
                waiting[name].result()
        assert not comes_true(lambda: not all(waiting[name].is_running for name in PERSISTENT_CALLS), patience_s=0.5)
    with program(SERVER_PROGRAM, "server = serve(); asked()", "", port) as again:
        again.line()
        reverb.Client(f"ipv4:127.0.0.1:{port}").insert(7, {"queue": 1.0})
        reverb.Client(f"ipv4:127.0.0.1:{port}").insert(7, {"queue": 1.0})
        assert [waiting[name].result() for name in ("sample", "loader", "writer")] == [7, 7, None]


@pytest.mark.parametrize("ending", SAVING)
def test_a_server_that_saves_at_the_end_says_the_same(far_client, tmp_path, ending):
    code, status, is_for_good = SAVING[ending]
    with program(SERVER_PROGRAM, code, str(tmp_path), "") as server:
        make, _ = far_client(server)
        waiting = begin({"sample_batch": WAITING_CALLS["sample_batch"]}, make)
        end(server, status)
        with pytest.raises(errors.ServerStoppedError if is_for_good else errors.UnavailableError):
            waiting["sample_batch"].result()
    assert list(tmp_path.iterdir())


COMMANDS = {
    "serve": [sys.executable, "-c", "from reverb.cli import main; main()", "serve"],
    "reverb_server": [sys.executable, "-m", "reverb.server_executable.server_main"],
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.parametrize("told", ["nothing", "flag", "variable"])
@pytest.mark.parametrize("name", COMMANDS)
def test_signals_to_commands_say_that_the_server_will_be_back(name, told, number, tmp_path):
    config = """
        tables {
          table_name: "queue" sampler { fifo: true } remover { fifo: true } max_size: 10
          rate_limiter { samples_per_insert: 1 min_size_to_sample: 1 min_diff: 0 max_diff: 10 }
        }
    """
    file = tmp_path / "tables.textproto"
    file.write_text(config)
    arguments = [*COMMANDS[name], *([str(file)] if name == "serve" else [f"--config={config}"])]
    arguments += ["--no-return"] if told == "flag" else []
    environment = {**os.environ, **({"REVERB_RETURNS": "0"} if told == "variable" else {})}
    process = subprocess.Popen(arguments, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        line = next(line for line in process.stderr if " port " in line and "tables:" in line)
        client = reverb.Client(f"ipv4:127.0.0.1:{line.split(' port ')[1].split(',')[0]}")
        client.server_info()
        waiting = Background(client.sample_batch, "queue", 1)
        assert not comes_true(lambda: not waiting.is_running, patience_s=0.3)
        process.send_signal(number)
        with pytest.raises(errors.UnavailableError if told == "nothing" else errors.ServerStoppedError):
            waiting.result()
        assert process.wait(PATIENCE_S) == 128 + number
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def documented_program():
    """Returns the program of several processes that docs/restarts.md shows."""
    text = (pathlib.Path(__file__).parents[2] / "docs" / "restarts.md").read_text()
    [code] = [code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "multiprocessing" in code]
    return code


@pytest.mark.parametrize("learner_fails", [False, True])
def test_the_documented_program_of_several_processes_ends(tmp_path, learner_fails):
    code = documented_program()
    if learner_fails:
        [call] = re.findall(r'\n        client.sample_batch\("queue", 8\)\n', code)
        code = code.replace(call, f"{call}        raise ValueError('the learner fails')\n")
    (tmp_path / "learn.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "learn.py"], cwd=tmp_path, capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False
    )
    assert done.returncode == learner_fails, done.stderr
    assert done.stderr.count("Traceback") == learner_fails, done.stderr
    assert ("the learner fails" in done.stderr) == learner_fails


def test_a_server_that_answers_at_once_is_a_restart(far_client):
    """Another server is at the address when the client looks for it once."""
    code = """
server = serve()
port = server.port
asked()
server.stop()
server = reverb.Server([reverb.Table.queue("queue", max_size=10), reverb.Table.queue("full", max_size=1)], port=port)
print("again", flush=True)
sys.stdin.read()
"""
    with program(SERVER_PROGRAM, code, "", "") as server:
        make, _ = far_client(server)
        idle = make()
        writer = idle.trajectory_writer(num_keep_alive_refs=1)
        writer.append([1])
        writer.create_item("queue", 1.0, [writer.history[0][:]])
        writer.flush()
        end(server, None)
        assert server.line().strip() == "again"
        # The streams have told that the server has gone; the call finds the next one.
        writer.append([2])
        writer.create_item("queue", 1.0, [writer.history[0][-1:]])
        writer.flush()
        assert PERSISTENT_CALLS["sample"](idle) == 2


@contextlib.contextmanager
def idle_writer(far_client):
    """A writer without unconfirmed items, and the port of its server, which was stopped for good."""
    with program(SERVER_PROGRAM, FOR_GOOD["stop"][0], "", "") as server:
        make, port = far_client(server)
        writer = make().trajectory_writer(num_keep_alive_refs=1)
        writer.append([1])
        writer.create_item("full", 1.0, [writer.history[0][:]])
        writer.flush()
        end(server, None)
        assert comes_true(lambda: not is_served(port), PATIENCE_S)
        yield writer, port


def test_an_idle_writer_finds_the_next_server(far_client):
    with idle_writer(far_client) as (writer, port):
        pass
    with program(SERVER_PROGRAM, "server = serve(); asked()", "", port) as again:
        again.line()
        writer.append([2])
        writer.create_item("queue", 1.0, [writer.history[0][-1:]])
        writer.flush()
        assert PERSISTENT_CALLS["sample"](reverb.Client(f"ipv4:127.0.0.1:{port}")) == 2


def test_a_writer_that_is_closed_afterwards_logs_what_was_lost(far_client, caplog):
    with idle_writer(far_client) as (writer, _):
        writer.append([2])
        writer.create_item("full", 1.0, [writer.history[0][-1:]])
        writer.close()
    assert any("1 items were not confirmed" in text and "table `full`" in text for text in caplog.messages)


def test_one_of_several_servers_counts_as_lost():
    with (
        program(SERVER_PROGRAM, FOR_GOOD["end"][0], "", "") as first,
        program(SERVER_PROGRAM, FOR_GOOD["end"][0], "", "") as second,
    ):
        ports = [server.line().split()[0] for server in (first, second)]
        client = reverb.Client("ipv4:" + ",".join(f"127.0.0.1:{port}" for port in ports))
        client.server_info()
        waiting = [Background(client.sample_batch, "queue", 1) for _ in range(2)]
        assert not comes_true(lambda: not all(one.is_running for one in waiting), patience_s=0.5)
        end(first, 0)
        reverb.Client(f"ipv4:127.0.0.1:{ports[1]}").insert(7, {"queue": 1.0})
        reverb.Client(f"ipv4:127.0.0.1:{ports[1]}").insert(7, {"queue": 1.0})
        assert [np.ravel(one.result().data[0])[0] for one in waiting] == [7, 7]
        end(second, 0)
        with pytest.raises(errors.UnavailableError):
            client.sample_batch("queue", 1)


@pytest.mark.parametrize(("timeout", "error"), [(60, errors.UnavailableError), (1, errors.DeadlineExceededError)])
def test_a_balancer_that_has_no_answer_yet_counts_as_a_lost_server(timeout, error):
    """A balancer takes the connection, but looks for seconds for a server that is up."""
    with program(SERVER_PROGRAM, FOR_GOOD["stop"][0], "", "") as server:
        port = int(server.line().split()[0])
        client = reverb.Client(f"ipv4:127.0.0.1:{port}")
        client.server_info()
        end(server, None)
        assert comes_true(lambda: not is_served(port), PATIENCE_S)
        check_stopped(client.sample_batch, "queue", 1)
        with socket.create_server(("127.0.0.1", port)), pytest.raises(error, match="does not answer") as raised:
            client.sample_batch("queue", 1, timeout=timeout)
        assert raised.value.is_transient
        check_stopped(client.sample_batch, "queue", 1)


def test_a_server_of_the_same_process_ends_calls_with_cancelled_errors():
    server = reverb.Server([reverb.Table.queue("queue", max_size=1)])
    waiting = Background(server.localhost_client().sample_batch, "queue", 1)
    assert not comes_true(lambda: not waiting.is_running, patience_s=0.3)
    server.stop()
    with pytest.raises(errors.CancelledError) as stopped:
        waiting.result()
    assert type(stopped.value) is errors.CancelledError


def test_a_client_that_waited_for_a_server_of_its_process_gets_the_short_road():
    server = reverb.Server([reverb.Table.queue("queue", 10)])
    for _ in range(5):
        server.stop(returns=True)
        client = reverb.Client(f"localhost:{server.port}")
        waiting = Background(lambda client=client: client.server_info(timeout=PATIENCE_S))
        time.sleep(0.1)
        server = reverb.Server([reverb.Table.queue("queue", 10)], port=server.port)
        assert list(waiting.result()) == ["queue"]
        assert client.road == "same_process"
