"""The benchmarks without their times: what stands in documents, and what each side must show before it is measured."""

import importlib
import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import reverb

BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def module(monkeypatch):
    """Imports a module of the benchmarks, which are programs, not a package."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def record(**versions):
    """A record of two cells of each side."""
    works = {"uniform": "add 1", "prioritized": "learn 256"}
    results = [
        {"area": "survey", "side": side, "table": table, "work": work, "median_us": 10.0 * (index + 1)}
        for index, side in enumerate(versions)
        for table, work in works.items()
    ]
    network = {"area": "network", "payload": "0.4 kB", "road": "tcp", "clients": 1, "items_per_s": 5e6}
    results += [{**network, "side": "ours", "work": work} for work in ("sample_batch", "trajectory_writer")]
    return {"versions": versions, "results": results}


def test_tables_and_plots_are_those_of_the_records():
    command = [sys.executable, str(BENCHMARKS / "report.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_table_has_the_peers_of_a_record_side_by_side(module):
    found = record(
        ours={"reverb-replay": "0.2.0"}, torchrl={"torchrl": "0.14.1"}, tensorflow={"reverb-replay": "0.2.0"}
    )
    found["results"].append({"area": "memory", "side": "reference", "work": "idle server", "mib": 446})
    header, rows = module("summary").of(found)
    assert header == ["work", "ours 0.2.0", "TorchRL 0.14.1"]
    assert rows == [
        ["same process: add 1 transition", "10 µs", "20 µs"],
        ["same process: draw 256 by priority, update them", "10 µs", "20 µs"],
    ]


def test_plots_name_each_side_and_its_values(module):
    pictures = module("plots").of(record(ours={"reverb-replay": "0.2.0"}, flashbax={"flashbax": "0.1.3"}))
    texts = {name: [text.text for text in ElementTree.fromstring(picture)] for name, picture in pictures.items()}
    assert {"ours", "Flashbax", "add 1 transition", "20 µs"} <= set(texts["benchmarks-buffers.svg"])
    assert {"ours, TCP", "0.4 kB", "5 M"} <= set(texts["benchmarks-reading.svg"])
    assert "cpprb" not in texts["benchmarks-buffers.svg"]


@pytest.mark.parametrize("setup", ["buffer_setup", "table_setup"])
@pytest.mark.parametrize("exponent", [None, 0.4])
def test_our_sides_do_what_is_measured(module, setup, exponent):
    works = ["add", "sample"] + ["update", "learn"] * (exponent is not None)
    worker = module("workers").Worker(sys.executable, "ours")
    with worker:
        worker.call(setup, payload="transition", capacity=1000, exponent=exponent)
        for work in works:
            assert worker.call("buffer_work", work=work, count=7, seconds=0)["calls"] >= 5


def test_the_turns_of_many_writers_all_arrive(module):
    workers = module("workers")
    with workers.Worker(sys.executable, "ours") as server, workers.Worker(sys.executable, "ours") as load:
        address = server.call("serve", payload="0.4 kB")["unix"]
        load.call("clients_open_writers", address=address, payload="0.4 kB", clients=2, writers=4, turn=20)
        done = load.call("clients_write", seconds=0.02)
        load.call("clients_close")
        with reverb.Client(address) as client:
            inserted = client.server_info()["in"].current_size
    assert len(done["rates"]) == 4
    assert all(done["rates"])
    # Each writer has written a turn of 20 before.
    assert inserted == 20 * (done["calls"] + 4)


def test_cells_of_many_clients_say_whether_their_bars_hold(module):
    clients = module("areas.clients")

    def rounds(rates):
        done = {"times_us": [10.0, 30.0], "calls": 2, "items_per_s": sum(rates), "rates": rates}
        return [{"trajectory_writer": done}]

    cells = {
        clients.Cell("0.4 kB", "tcp", writers=10): rounds([100.0] * 10),
        clients.Cell("0.4 kB", "tcp", writers=100): rounds([9.0] * 100),
        clients.Cell("0.4 kB", "tcp", writers=1000): rounds([0.6] * 999 + [0.1]),
        clients.Cell("0.4 kB", "tcp", writers=1000, is_shared=True): rounds([5.0] * 1000),
    }
    results = list(clients.results_of(cells, quick=False))
    assert [result["holds"] for result in results] == [True, True, False, True]
    assert [result["of_best"] for result in results] == [1.0, 0.9, 0.6, 5.0]
    assert [result["least_share"] for result in results] == [1.0, 1.0, 0.167, 1.0]
    lines = module("report").clients(results).splitlines()
    labels = "| trajectory_writer | 0.4 kB | 1,000 |"
    assert lines[-2].startswith(f"{labels}  | 600 (0.24; 20, 29.8, 30) |  | 0.17 (bar 0.5) | 0.60 (bar 0.5) |")
    assert lines[-1].startswith(f"{labels} 5 clients in all | 5,000 (")


class Forgetful:
    """A buffer that draws the newest rows, and whose priorities mean nothing."""

    def __init__(self, payload, capacity, exponent):
        self._rows = {}

    def adder(self, rows):
        return lambda: self._rows.update(rows)

    def drawer(self, count):
        return lambda: {name: column[-count:] for name, column in self._rows.items()}

    def updater(self, priorities):
        return lambda batch: None

    def read(self, batch):
        return batch, np.arange(len(batch["rew"]))


class Inventive(Forgetful):
    """One that draws rows which nobody has added."""

    def drawer(self, count):
        return lambda: {name: column + 1 for name, column in self._rows.items()}


def test_a_side_whose_batches_are_wrong_is_not_measured(module):
    check = module("sides.buffering").check
    check(Forgetful, "transition", None)
    with pytest.raises(AssertionError, match="rows that were not added"):
        check(Inventive, "transition", None)
    with pytest.raises(AssertionError, match="after an update, 1 of 256 items"):
        check(Forgetful, "transition", 0.4)


def test_a_run_names_what_is_not_installed_and_ends_with_the_machine(tmp_path):
    command = [
        sys.executable,
        BENCHMARKS / "run.py",
        "--quick",
        "--only",
        "leaves",
        "--out",
        tmp_path,
        "--name",
        "short",
    ]
    peers = [
        f"--{side}={tmp_path}/python" for side in ("reference", "cpprb", "torchrl", "torch", "flashbax", "tensorflow")
    ]
    done = subprocess.run([*command, *peers], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    skipped = [line.partition(":")[0] for line in done.stderr.splitlines() if line.startswith("SKIPPED")]
    assert skipped[:3] == ["SKIPPED dm-reverb", "SKIPPED cpprb", "SKIPPED TorchRL"]
    assert "`make bench-peers` installs it" in done.stderr
    assert "memcpy" in done.stdout
    [path] = tmp_path.glob("*-short.json")
    written = json.loads(path.read_text())
    assert {"ours"} == set(written["versions"])
    assert written["failed"] == []
    assert written["summary"] == [["work"], []]
