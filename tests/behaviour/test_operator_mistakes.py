"""The mistakes of operators that stall a server, made by real clients: each verdict names the cause."""

import dataclasses
import logging
import re
import signal
import subprocess
import sys

import pytest
from behaviour_support import PATIENCE_S, eventually
from http_support import ask, get

import reverb
from reverb.rate_limiters import MinSize, SampleToInsertRatio

# A program that inserts into tables and draws from them, as its arguments say, and tells each step that is done.
PROGRAM = """
import sys, numpy as np, reverb
address, *steps = sys.argv[1:]
client = reverb.Client(address)
for step in steps:
    verb, table, count = step.split(":")
    for _ in range(int(count)):
        if verb == "insert":
            client.insert(np.int64(1), {table: 1.0})
        else:
            list(client.sample(table, 1))
    print(step, flush=True)
sys.stdin.read()
"""
# A queue of two items, a table of 100 items at least, one with an error buffer, and one that is drawn from at any time.
QUEUE, REPLAY, RATIO, PARAMETERS = "queue", "replay", "ratio", "parameters"


@dataclasses.dataclass
class Mistake:
    """What the programs do, each until it waits. Once all have done what they can, some are killed or suspended."""

    title: str
    programs: dict[str, list[str]]
    sentence: str
    killed: tuple[str, ...] = ()
    suspended: tuple[str, ...] = ()
    # The number of steps that each program gets done.
    done: dict[str, int] = dataclasses.field(default_factory=dict)


MISTAKES = [
    Mistake(
        "nobody reads a second table, for which the actor waits",
        {"actor.py": ["insert:replay:1", "insert:queue:2", "insert:queue:1"], "learner.py": ["sample:replay:1"]},
        "nobody has sampled queue (full), so actor.py waits, so replay gets nothing, so learner.py waits",
        done={"actor.py": 2},
    ),
    Mistake(
        "a program inserts more than its buffer has room for before it draws",
        {"train.py": ["insert:ratio:100"]},
        "nobody has sampled ratio (actors may be at most ",
    ),
    Mistake(
        "the actors did not come back after a restart",
        {"learner.py": ["sample:queue:1"]},
        "nobody has inserted into queue (empty), so learner.py waits",
    ),
    Mistake(
        "the actor was killed, and the learner writes another table",
        {
            "actor.py": ["insert:queue:2"],
            "learner.py": ["insert:parameters:1", "sample:queue:2", "sample:queue:1"],
        },
        "nobody inserts into queue since actor.py was lost TIME ago (empty), so learner.py waits",
        killed=("actor.py",),
        done={"actor.py": 1, "learner.py": 2},
    ),
    Mistake(
        "the learner was killed, and the actor draws from another table",
        {
            "learner.py": ["insert:parameters:1", "sample:queue:1"],
            "actor.py": ["sample:parameters:1", "insert:queue:3", "insert:queue:1"],
        },
        "nobody draws from queue since learner.py was lost TIME ago (full), so actor.py waits",
        killed=("learner.py",),
        done={"actor.py": 2, "learner.py": 2},
    ),
    Mistake(
        "the learner is suspended, and does not answer any more",
        {"learner.py": ["sample:queue:1"], "actor.py": ["insert:queue:3", "insert:queue:1"]},
        "nobody draws from queue since learner.py stopped answering TIME ago (full), so actor.py waits",
        suspended=("learner.py",),
        done={"learner.py": 1, "actor.py": 1},
    ),
    Mistake(
        "nobody reads a queue, and a client has drawn from another table",
        {"actor.py": ["insert:parameters:1", "insert:queue:2", "insert:queue:1"], "nb.py": ["sample:parameters:1"]},
        "nobody has sampled queue (full), so actor.py waits",
        done={"actor.py": 2, "nb.py": 1},
    ),
]


def start(folder, port, programs):
    """Starts programs by their names."""
    started = {}
    for name, steps in programs.items():
        (folder / name).write_text(PROGRAM)
        command = [sys.executable, folder / name, f"ipv4:127.0.0.1:{port}", *steps]
        started[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return started


@pytest.fixture
def servers(tmp_path):
    """A server with its programs for each mistake, in their order."""
    running = []
    for number, mistake in enumerate(MISTAKES):
        tables = [
            reverb.Table.queue(QUEUE, 2),
            *(
                reverb.Table(name, reverb.selectors.Uniform(), reverb.selectors.Fifo(), 1000, limiter)
                for name, limiter in (
                    (REPLAY, MinSize(100)),
                    (RATIO, SampleToInsertRatio(1.0, 10, 10.0)),
                    (PARAMETERS, MinSize(1)),
                )
            ),
        ]
        folder = tmp_path / str(number)
        folder.mkdir()
        server = reverb.Server(tables, http_port=0)
        running.append((server, start(folder, server.port, mistake.programs)))
    yield [server for server, _ in running], [programs for _, programs in running]
    for server, programs in running:
        for program in programs.values():
            program.kill()
            program.wait()
            program.stdin.close()
            program.stdout.close()
        server.stop()


@pytest.mark.slow
@pytest.mark.timeout(12 * PATIENCE_S)
def test_verdicts_on_mistakes_name_the_cause_and_are_logged_once(servers, caplog):
    caplog.set_level(logging.INFO)
    running, started = servers
    for mistake, programs in zip(MISTAKES, started, strict=True):
        for name, count in mistake.done.items():
            told = [programs[name].stdout.readline().strip() for _ in range(count)]
            assert told == mistake.programs[name][:count], mistake.title
        for name in mistake.killed:
            programs[name].kill()
        for name in mistake.suspended:
            programs[name].send_signal(signal.SIGSTOP)
    for mistake, server in zip(MISTAKES, running, strict=True):
        # A program that does not answer any more is given up after half a minute.
        eventually(lambda server=server: get(server, "verdict")["state"] == "stalled", 5 * PATIENCE_S)
        line = ask(server.http_port, "/readyz").text
        sentence = re.escape(mistake.sentence).replace("TIME", r".+?")
        expected = re.compile(r"Stalled [^:]+: " + sentence)
        assert expected.search(line), (mistake.title, line)
    for sentence in {re.escape(mistake.sentence).replace("TIME", r".+") for mistake in MISTAKES}:
        expected = ["WARNING" for mistake in MISTAKES if re.match(sentence, mistake.sentence)]

        def levels(sentence=f"Stalled [^:]+: {sentence}"):
            return [record.levelname for record in caplog.records if re.match(sentence, record.getMessage())]

        # The log of the core reaches Python a moment later.
        eventually(lambda levels=levels, expected=expected: len(levels()) >= len(expected))
        assert levels() == expected, sentence
