"""Healthy programs pause, made by real clients: for an evaluation, a rollout, a save. No server calls that a stall."""

import dataclasses
import subprocess
import sys

import pytest
from behaviour_support import PATIENCE_S, eventually
from http_support import get

import reverb
from reverb.rate_limiters import MinSize

# A program that does the steps of its arguments and tells each that is done. At `pause` it waits for a line of input.
PROGRAM = """
import sys, numpy as np, reverb
from reverb.loaders import NumpyLoader
address, *steps = sys.argv[1:]
client = reverb.Client(address)
loader = seen = None
for step in steps:
    verb, table, count = (step + "::").split(":")[:3]
    for _ in range(int(count or 1)):
        if verb == "pause":
            print("pauses", flush=True)
            sys.stdin.readline()
        elif verb == "insert":
            client.insert(np.int64(1), {table: 1.0})
        elif verb == "sample":
            list(client.sample(table, 1))
        elif verb == "newer":
            seen = client.wait_newer(table, after=seen).info.key
        elif verb == "load":
            loader = loader or iter(NumpyLoader(client, table, batch_size=1))
            next(loader)
    print(step, flush=True)
if loader is not None:
    loader.close()
"""
# A queue of two items, a table from which anybody may draw, and one of one item.
QUEUE, REPLAY, PARAMETERS = "queue", "replay", "parameters"
# Twelve seconds: a pause of ten is a stall where no client that is connected can end it.
PAUSE_SECONDS = 12.0


@dataclasses.dataclass
class Healthy:
    """What programs do, in order: each of its own begins once those before it are through, or pause, or wait."""

    title: str
    programs: dict[str, list[str]]
    # The programs that wait for the one that pauses, with the number of steps that they get done before.
    waiting: dict[str, int] = dataclasses.field(default_factory=dict)
    # What the verdict is while they pause.
    state: str = "idle"
    sentence: str = ""


HEALTHY = [
    Healthy(
        "the learner evaluates, and the actor waits for room",
        {
            "learner.py": ["insert:queue:1", "sample:queue:1", "pause", "sample:queue:3"],
            "actor.py": ["insert:queue:2", "insert:queue:1"],
        },
        {"actor.py": 1},
        "waiting",
        "learner.py has not drawn from queue (full), so actor.py waits",
    ),
    Healthy(
        "the actor plays a long episode, and the learner waits for it",
        {
            "actor.py": ["insert:queue:1", "pause", "insert:queue:1"],
            "learner.py": ["sample:queue:1", "sample:queue:1"],
        },
        {"learner.py": 1},
        "waiting",
        "actor.py has not inserted into queue (empty), so learner.py waits",
    ),
    Healthy(
        "the training is over, and the programs are gone",
        {"actor.py": ["insert:queue:2"], "learner.py": ["sample:queue:2"]},
        sentence="nobody is connected",
    ),
    Healthy(
        "a learner of offline data evaluates, and nobody inserts any more",
        {"import.py": ["insert:replay:5"], "learner.py": ["sample:replay:5", "pause", "sample:replay:5"]},
        sentence="the client that is connected asks for nothing",
    ),
    Healthy(
        "actors wait for newer parameters of a learner that takes its time",
        {
            "learner.py": ["insert:parameters:1", "pause", "insert:parameters:1"],
            "actor.py": ["newer:parameters", "newer:parameters"],
        },
        {"actor.py": 1},
        "waiting",
        "actor.py waits for a newer version of parameters",
    ),
    Healthy(
        "a loader has drawn all that there is, and draws ahead, while its program evaluates",
        {"gather.py": ["insert:queue:2"], "learner.py": ["load:queue:2", "pause"]},
        state="waiting",
        sentence="nobody inserts into queue since gather.py left",
    ),
]


class Run:
    """A server, and its programs."""

    def __init__(self, healthy, folder):
        self.healthy = healthy
        self.verdicts = []
        tables = [
            reverb.Table.queue(QUEUE, 2),
            *(
                reverb.Table(name, reverb.selectors.Uniform(), reverb.selectors.Fifo(), size, MinSize(1))
                for name, size in ((REPLAY, 100), (PARAMETERS, 1))
            ),
        ]
        self.server = reverb.Server(tables, http_port=0)
        self.programs = {}
        self._folder = folder

    def start(self):
        """Starts the programs, each when the one before it has done what it can."""
        for name, steps in self.healthy.programs.items():
            (self._folder / name).write_text(PROGRAM)
            command = [sys.executable, self._folder / name, f"ipv4:127.0.0.1:{self.server.port}", *steps]
            program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.programs[name] = program
            pauses = steps.index("pause") if "pause" in steps else len(steps)
            done = self.healthy.waiting.get(name, pauses)
            told = [program.stdout.readline().strip() for _ in range(done + ("pause" in steps))]
            assert told == steps[:done] + ["pauses"] * ("pause" in steps), self.healthy.title

    def pauses(self):
        """Asks for the verdict. Returns whether the pause was long enough."""
        told = get(self.server, "verdict")
        tables = get(self.server, "tables")["tables"]
        self.verdicts.append((told["state"], told["level"], *(table["progress"]["level"] for table in tables)))
        as_expected = told["state"] == self.healthy.state and self.healthy.sentence in told["line"]
        return (as_expected and told["seconds"] >= PAUSE_SECONDS) or told["state"] == "stalled"

    def go_on(self):
        """Ends the pause, and waits until the programs have done all that they do."""
        for program in self.programs.values():
            output, _ = program.communicate("\n", timeout=PATIENCE_S)
            assert program.returncode == 0, (self.healthy.title, output)

    def end(self):
        """Ends all processes."""
        for program in self.programs.values():
            program.kill()
            program.wait()
            program.stdin.close()
            program.stdout.close()
        self.server.stop()


@pytest.fixture
def runs(tmp_path):
    """All healthy programs, with their servers."""
    made = []
    for number, healthy in enumerate(HEALTHY):
        folder = tmp_path / str(number)
        folder.mkdir()
        made.append(Run(healthy, folder))
    yield made
    for run in made:
        run.end()


@pytest.mark.slow
@pytest.mark.timeout(12 * PATIENCE_S)
def test_no_verdict_on_healthy_programs_is_a_stall_while_they_pause(runs):
    for run in runs:
        run.start()
    # Each server is asked over the whole pause.
    eventually(lambda: sum(run.pauses() for run in runs) == len(runs), 2 * PATIENCE_S)
    for run in runs:
        run.go_on()
        run.pauses()
        seen = {word for verdict in run.verdicts for word in verdict}
        assert seen <= {"flowing", "waiting", "idle", "good", "quiet"}, (run.healthy.title, run.verdicts)
