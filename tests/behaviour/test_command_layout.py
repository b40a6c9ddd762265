"""What `reverb info` and `reverb peek` show, in terminals of several widths."""

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from behaviour_support import PATIENCE_S, Background, eventually
from terminal_support import CONTROLS, Terminal

import reverb

pytest.importorskip("typer", reason="the extra `cli` is not installed")
pytest.importorskip("rich", reason="the extra `cli` is not installed")

COMMAND = [sys.executable, "-c", "from reverb.cli import main; main()"]
NAME = "trajectories_of_[bold]actors"
STEP = {"observation": {"image": np.zeros(4, np.float32)}, "reward": np.float32(0.5)}
SIGNATURE = {
    "observation": {"image": reverb.TensorSpec((4,), np.float32)},
    "reward": reverb.TensorSpec((), np.float32),
}


def environment(width):
    return {**os.environ, "COLUMNS": str(width)}


def output(*arguments, width=80):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], check=True, capture_output=True, text=True, env=environment(width)
    ).stdout


@pytest.fixture
def address():
    """The address of a server with a full queue and an empty table, at both of which clients wait."""
    replay = reverb.Table(
        "replay",
        reverb.selectors.Prioritized(0.6),
        reverb.selectors.Fifo(),
        1_000_000,
        reverb.rate_limiters.MinSize(100),
    )
    server = reverb.Server([reverb.Table.queue(NAME, 2, signature=SIGNATURE), replay])
    client = server.localhost_client()
    for _ in range(2):
        client.insert(STEP, {NAME: 1.0})
    waiting = [Background(client.insert, STEP, {NAME: 1.0}) for _ in range(3)]
    waiting += [Background(client.sample_batch, "replay", 8) for _ in range(2)]
    address = f"localhost:{server.port}"
    eventually(lambda: num_waiting(address) == 5)
    yield address
    server.stop()


def looks_of(address):
    return json.loads(output("info", address, "--json"))


def num_waiting(address):
    return sum(look["waiting_inserts"] + look["waiting_samples"] for look in looks_of(address))


def in_one_line(text):
    return " ".join(text.split())


def check_view(text, width, address):
    """Checks that a view fits the width, and that it has the names, the numbers of items and the reasons of waits."""
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert re.search(rf"^\W*{re.escape(NAME)}\W+2\b", text, re.MULTILINE)
    assert re.search(r"^\W*replay\W+0\b", text, re.MULTILINE)
    inserts, samples = (look["waits"][0] for look in looks_of(address))
    below = in_one_line(text[text.rindex("waiting") :])
    assert below == f"waiting 3 inserts: {inserts} 2 samples: {samples}"


def columns_of(text):
    header = next(line for line in text.splitlines() if line.startswith("┃"))
    return header.replace("┃", "").split()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_info_fits_the_width(address, width):
    check_view(output("info", address, width=width), width, address)


def test_info_drops_columns_that_do_not_fit(address):
    shown = {width: columns_of(output("info", address, width=width)) for width in (60, 80, 120)}
    all_columns = ["table", "items", "of", "data", "inserts", "samples", "ratio", "selectors"]
    assert shown[120] == all_columns
    assert shown[80] == all_columns[:6]
    assert shown[60] == ["table", "items", "inserts", "samples"]


def test_name_that_is_wider_than_the_terminal_is_continued(address):
    lines = output("info", address, width=30).splitlines()
    assert max(map(len, lines)) <= 30
    names = [line.split("│")[1].strip() for line in lines if line.startswith("│")]
    assert "".join(names) == NAME + "replay"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_watched_info_fits_the_width_in_a_pipe(address, width):
    with subprocess.Popen(
        [*COMMAND, "info", address, "--watch", "--interval", "0.05"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(width),
    ) as watching:
        # Three views; each begins with the address.
        lines = []
        while sum(address in line for line in lines) < 4:
            lines.append(watching.stdout.readline())
            assert lines[-1], "it has ended"
        watching.send_signal(signal.SIGINT)
        assert watching.wait(PATIENCE_S) == 130
    starts = [number for number, line in enumerate(lines) if address in line]
    view = "".join(lines[starts[1] + 1 : starts[2]])
    check_view(view, width, address)
    assert "inserts/s" in view


@pytest.mark.parametrize("width", [60, 80, 120])
def test_watched_info_fits_a_terminal(address, width):
    with Terminal([*COMMAND, "info", address, "--watch", "--interval", "0.05"], width) as terminal:
        # Each view after the first begins where the one before it did, with the line erased.
        eventually(lambda: terminal.read() and terminal.seen.count(address) >= 4)
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 130
    views = CONTROLS.sub("", terminal.seen).replace("\r", "").split(address)
    check_view(views[2].split("\n", 1)[1].rstrip(" "), width, address)


def test_peek_names_columns_by_path(address):
    shown = output("peek", address, NAME)
    assert "data/observation/image: float32[1, 4]  [0.0, 0.0, 0.0, 0.0]\n" in shown
    assert "data/reward: float32[1]  [0.5]\n" in shown


def test_peek_numbers_the_columns_of_a_table_without_a_signature(tmp_path):
    tables = [reverb.Table.queue("plain", 9), reverb.Table.queue("signed", 9, signature=SIGNATURE)]
    server = reverb.Server(tables, checkpointer=reverb.checkpointers.DefaultCheckpointer(tmp_path))
    client = server.localhost_client()
    client.insert([np.int32(1), np.int32(2)], {"plain": 1.0})
    client.insert(STEP, {"signed": 1.0})
    client.checkpoint()
    for source in (f"localhost:{server.port}", tmp_path):
        items = {name: json.loads(output("peek", source, name, "--json")) for name in ("plain", "signed")}
        assert {name: [column["name"] for column in item["columns"]] for name, item in items.items()} == {
            "plain": ["data/0", "data/1"],
            "signed": ["data/observation/image", "data/reward"],
        }
    server.stop()
