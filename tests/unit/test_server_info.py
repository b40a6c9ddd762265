"""What `reverb info` and its lines show of a table, also of one of which little is known."""

import dataclasses
import io
import json

import pytest

pytest.importorskip("typer", reason="the extra `cli` is not installed")
pytest.importorskip("rich", reason="the extra `cli` is not installed")

from rich.console import Console

import reverb
from reverb.cli import output, stat_lines
from reverb.cli.server_info import Look, View
from reverb.data.table_figures import TableFigures
from reverb.reverb_types import TableInfo

FIGURES = [figure.name for figure in dataclasses.fields(TableFigures)]


@pytest.fixture
def known():
    return reverb.Table.queue("queue", 5).info


@pytest.fixture
def unknown(known):
    """As a server of dm-reverb describes it."""
    return dataclasses.replace(known, **dict.fromkeys(FIGURES))


def shown(info):
    text = io.StringIO()
    Console(file=text, width=120).print(View([Look(info)]))
    return text.getvalue()


def test_a_figure_that_is_not_known_is_a_dash(known, unknown):
    assert " 0 B │" in shown(known)
    assert " - │" in shown(unknown)
    assert "waiting" not in shown(unknown)


def test_rates_are_those_of_what_the_server_has_counted(known, unknown):
    def look(inserts, samples, of=known):
        return Look(dataclasses.replace(of, process_inserts=inserts, process_samples=samples))

    # The totals of the table are the same in all looks.
    now = look(30, 50)
    now.measure(look(10, 0), 2.0)
    assert (now.inserts_per_second, now.samples_per_second) == (10.0, 25.0)
    # The server was restarted.
    now.measure(look(31, 50), 2.0)
    assert (now.inserts_per_second, now.samples_per_second) == (None, 0.0)
    now.measure(look(None, None, unknown), 2.0)
    assert (now.inserts_per_second, now.samples_per_second) == (0.0, 0.0)


def test_json_has_all_figures_and_null_for_those_that_are_not_known(known, unknown, capsys):
    output.print_json([Look(known).as_json(), Look(unknown).as_json()])
    one, other = json.loads(capsys.readouterr().out)
    assert set(FIGURES) < set(one) == set(other)
    assert (one["bytes"], one["waiting_inserts"], one["size"], one["sampler"]) == (0, 0, 0, "fifo")
    assert {other[name] for name in FIGURES} == {None}
    assert (other["size"], other["max_size"], other["inserts"], other["waits"]) == (0, 5, 0, [])


def test_totals_of_tables_are_not_known_if_one_is_not(known, unknown):
    for infos, total in (([known, known], 0), ([known, unknown], None)):
        line = stat_lines._described(dict(enumerate(infos)), None)
        assert (line["bytes"], line["blocked"], line["items"]) == (total, total, 0)
    assert stat_lines._cell("bytes", line, None) == "-"


def test_infos_keep_their_figures_through_a_pickle_of_an_earlier_version(known):
    state = {name: value for name, value in vars(known).items() if name not in FIGURES} | {"bytes": 7}
    old = TableInfo.__new__(TableInfo)
    old.__setstate__(state)
    assert (old, old.bytes, old.weight) == (known, 7, None)
