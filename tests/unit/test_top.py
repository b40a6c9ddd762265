"""What `reverb top` draws of a given look at a server."""

import io
import itertools

import pytest

pytest.importorskip("typer", reason="the extra `cli` is not installed")
pytest.importorskip("rich", reason="the extra `cli` is not installed")

from rich.cells import cell_len
from rich.console import Console

from reverb.cli import top_parts as parts
from reverb.cli.cluster_observing import ClusterObservation, Shard
from reverb.cli.observing import Observation
from reverb.cli.top_view import ORDERS, View
from reverb.errors import UnavailableError

HOSTILE = "evil\x1b[31m\u202e[bold]表"
SENTENCE = "the queue is full (200 of 200 items); 1 more sample until an insert may go"


def limiter(diff=0.0, low=None, high=None, min_size=1):
    return {"diff": diff, "min_diff": low, "max_diff": high, "min_size": min_size}


def waiting(count=0, longest=0.0):
    return {"count": count, "longest_seconds": longest}


def table(number, name="replay", inserts=0.0, samples=0.0, data=0, waits=(0, 0.0), max_bytes=None, level="good"):
    return {
        "number": number,
        "name": name,
        "items": 25,
        "max_items": 100,
        "bytes": data,
        "max_bytes": max_bytes,
        "inserts_per_second": inserts,
        "samples_per_second": samples,
        "history": {"inserts_per_second": [inserts] * 60, "samples_per_second": [samples] * 60},
        "limiter": limiter(50.0, 0.0, 100.0),
        "waiting_inserts": waiting(*waits),
        "waiting_samples": waiting(),
        "progress": {"level": level},
    }


def client(number, name, inserts=0.0):
    return {
        "id": number,
        "name": name,
        "address": f"10.0.0.1:{number}",
        "transport": "tcp",
        "inserts_per_second": inserts,
        "samples_per_second": 0.0,
        "receive_bytes": 0,
        "transmit_bytes": 0,
        "receive_bytes_per_second": 2048.0,
        "transmit_bytes_per_second": None,
        "role": "writes",
        "waits": [],
    }


def wait(number, name, seconds=12.0, reason=SENTENCE):
    return {
        "client": number,
        "client_name": name,
        "address": "",
        "transport": "tcp",
        "seconds": seconds,
        "reason": reason,
    }


def seen(tables, clients=(), waits=(), **server):
    facts = {
        "version": "0.1.0",
        "hostname": "host",
        "pid": 7,
        "state": "serving",
        "now": 1000.0,
        "started_at": 0.0,
        "resident_bytes": 3 << 30,
        "connections": 2,
        "addresses": ["127.0.0.1:8000"],
        "dashboard_url": "http://localhost:8080",
    }
    store = {"saving": None, "last_error": None, "checkpoints": [{"saved_at": 900.0, "size_bytes": 2048}]}
    gone = {"name": "learner.py (host:8)", "at": 990.0, "how": "lost"}
    verdict = {"level": "warning", "line": "Stalled 12 s: nobody samples games"}
    return Observation({**facts, **server}, list(tables), list(waits), list(clients), [gone], store, verdict)


def rendered(view, width=160, height=40, encoding="utf-8"):
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=file, width=width, height=height, force_terminal=False).print(view)
    file.flush()
    return file.buffer.getvalue().decode(encoding).splitlines()


def everything(count=3):
    tables = [
        table(number, f"table_{number}", 10.0 * number, data=10**number, max_bytes=10**9) for number in range(count)
    ]
    tables.append(table(count, HOSTILE, waits=(2, 12.5)))
    clients = [client(number, f"actor-{number}", float(number)) for number in range(14)]
    return seen(tables, clients, [wait(3, "actor-3"), wait(4, HOSTILE, 0.5)])


@pytest.mark.parametrize(
    ("log", "text"),
    [
        ({}, "log (power) 2.0 KiB, unsynced for 12 s"),
        ({"sync_age_seconds": 0.0}, "log (power) 2.0 KiB, all synced"),
        ({"is_disk_low": True}, "log (power) 2.0 KiB, unsynced for 12 s, too little free space"),
        ({"failure": "no room", "is_disk_low": True}, "log closed, too little free space"),
        (None, None),
    ],
)
def test_a_screen_has_the_log_of_a_server_with_one(log, text):
    facts = {"mode": "power", "size_bytes": 2048, "sync_age_seconds": 12.0, "is_disk_low": False, "failure": None}
    look = seen([table(0, "table_0", 1.0)], [], [])
    look.checkpoints["log"] = None if log is None else {**facts, **log}
    shown = "\n".join(rendered(View(look, "there:8000")))
    assert shown.count("log") == (text is not None)
    assert (text or "") in shown


def test_a_screen_has_the_server_its_tables_clients_and_waits():
    text = "\n".join(rendered(View(everything(), "there:8000")))
    for part in (
        "reverb 0.1.0 · host pid 7 · up 16 min 40 s · memory 3.0 GiB · 2 connections",
        "gRPC 127.0.0.1:8000",
        "page http://localhost:8080",
        "checkpoint 1 min 40 s ago, 2.0 KiB",
        "25/100",
        "[···|···●···|···]",
        "2 inserts 12 s",
        "actor-13",
        "4 more clients",
        "learner.py (host:8) was lost 10 s ago",
        SENTENCE,
    ):
        assert part in text, part
    assert "actor-3" not in text.partition("busiest clients")[2].partition("waiting\n")[0]


def test_the_busiest_clients_come_first():
    lines = rendered(View(everything(), "there:8000"))
    start = next(number for number, line in enumerate(lines) if line.startswith("busiest clients"))
    assert [line.split()[0] for line in lines[start + 1 : start + 11]] == [
        f"actor-{number}" for number in range(13, 3, -1)
    ]


@pytest.mark.parametrize("width", [1, 20, 40, 60, 80, 100, 130, 160, 240])
@pytest.mark.parametrize("height", [2, 6, 12, 24, 40, 100])
def test_a_screen_fits_the_terminal(width, height):
    for clients, waits in itertools.product((False, True), repeat=2):
        view = View(everything(30), "there:8000", has_clients=clients, has_waits=waits, note=" q quit ")
        lines = rendered(view, width, height)
        assert len(lines) == height
        assert max(map(cell_len, lines)) <= width
        if height >= 12 and width >= 40:
            assert any("table_0" in line for line in lines)
            shown = sum("table_" in line for line in lines)
            assert any("more tables" in line for line in lines) == (shown < 30)


def cluster(*looks, missing=()):
    shards = [Shard(f"there:{number}", number, look) for number, look in enumerate(looks)]
    lost = [Shard(address, None, error=UnavailableError(f"no server at {address}: refused")) for address in missing]
    return ClusterObservation([*lost, *shards])


@pytest.mark.parametrize("width", [1, 40, 80, 160])
@pytest.mark.parametrize("height", [2, 12, 24, 100])
def test_a_screen_of_a_cluster_fits_the_terminal(width, height):
    seen = cluster(everything(5), everything(5), missing=["there:8"])
    lines = rendered(View(seen, "there:8000", note=" q quit "), width, height)
    assert len(lines) == height
    assert max(map(cell_len, lines)) <= width
    if height >= 12 and width >= 40:
        assert any("table" in line and "shard" in line for line in lines)
        assert any("more rows" in line for line in lines) == (height < 100)


def test_the_sums_of_a_cluster_lead_its_shards_in_each_order():
    looks = [seen([table(0, "a", 1.0), table(1, "b", 2.0)]), seen([table(0, "b", 0.5), table(1, "a", 3.0)])]
    rows = rendered(View(cluster(*looks), "there:8000", [name for name, _ in ORDERS].index("inserts/s")))
    shown = [line.split()[:2] for line in rows if "/100" in line or "/200" in line]
    assert shown == [[name, shard] for name in "ab" for shard in ("all", "0", "1")]
    assert next(line for line in rows if line.startswith("a ")).split()[2:5] == ["██░░░░░░", "50/200", "0"]


def test_the_facts_of_a_cluster_are_those_that_differ_and_sums():
    log = {"mode": "power", "size_bytes": 2048, "sync_age_seconds": 0.0, "is_disk_low": False, "failure": "no room"}
    looks = [seen([table(0)]), seen([table(0)], version="0.2.0", started_at=990.0, state="loading")]
    looks[0].verdict = {"level": "good", "line": "Flowing"}
    looks[0].checkpoints = {**looks[0].checkpoints, "checkpoints": []}
    looks[1].checkpoints = {**looks[1].checkpoints, "log": log}
    text = "\n".join(rendered(View(cluster(*looks, missing=["there:8"]), "there:8000")))
    for part in (
        "shard 1: Stalled 12 s: nobody samples games",
        "there:8 is missing: refused",
        "reverb 0.1.0, 0.2.0 · 2 of 3 shards · shard 1 loading · up 10 s to 16 min 40 s",
        "memory 6.0 GiB · 4 connections",
        "no checkpoint of shard 0",
        "logs 2.0 KiB",
        "shard 1 log closed",
        "learner.py (host:8) was lost 10 s ago",
    ):
        assert part in text, part
    assert text.count("learner.py") == 1
    assert "pid" not in text
    looks[0].checkpoints = {**looks[0].checkpoints, "checkpoints": [{"saved_at": 0.0, "size_bytes": 1}]}
    assert "oldest checkpoint 16 min 40 s ago, shard 0" in "\n".join(rendered(View(cluster(*looks), "there:8000")))


def test_what_waits_stays_on_a_small_screen():
    lines = rendered(View(everything(30), "there:8000", note=""), 80, 24)
    shown = " ".join(" ".join(lines).split())
    assert SENTENCE in shown


def test_nothing_is_cut_at_the_bottom_in_a_pipe():
    lines = rendered(View(everything(50), "there:8000"), 160, 10)
    assert sum(line.startswith("table_") for line in lines) == 50


def test_narrow_screens_keep_names_items_and_rates():
    header = next(line for line in rendered(View(everything(), "there:8000"), 60) if line.startswith("table"))
    assert {"table", "items", "inserts/s", "samples/s"} <= set(header.split())
    assert "limiter" not in header
    header = next(line for line in rendered(View(everything(), "there:8000"), 130) if line.startswith("table"))
    assert {"limiter", "waits"} <= set(header.split())


def test_text_of_users_is_escaped():
    text = "\n".join(rendered(View(everything(), "there:8000")))
    assert "evil\\x1b[31m\\u202e[bold]表" in text
    assert not {"\x1b", "\u202e"} & set(text)


def test_other_encodings_get_ascii():
    view = View(seen([table(0, data=10, max_bytes=20)], [client(0, "actor")], [wait(0, "actor")]), "there:8000")
    text = "\n".join(rendered(view, encoding="ascii"))
    assert "[...|...o...|...]" in text
    assert "####----" in text


@pytest.mark.parametrize(
    ("order", "first"),
    [
        ("as on the server", "a"),
        ("inserts/s", "b"),
        ("samples/s", "c"),
        ("bytes", "d"),
        ("waits", "e"),
        ("name", "Z"),
    ],
)
def test_tables_are_sorted(order, first):
    tables = [
        table(0, "a"),
        table(1, "b", inserts=5.0),
        table(2, "c", samples=5.0),
        table(3, "d", data=5),
        table(4, "e", waits=(1, 5.0)),
        table(5, "Z"),
    ]
    number = [name for name, _ in ORDERS].index(order)
    lines = rendered(View(seen(tables), "there:8000", number))
    start = next(number for number, line in enumerate(lines) if line.startswith("table"))
    assert lines[start + 1].split()[0] == first


@pytest.mark.parametrize(
    ("diff", "expected"),
    [
        (0.0, "[···|●······|···]"),
        (50.0, "[···|···●···|···]"),
        (100.0, "[···|······●|···]"),
        (-20.0, "[·●·|·······|···]"),
        (120.0, "[···|·······|·●·]"),
        (-1e9, "[●··|·······|···]"),
        (1e9, "[···|·······|··●]"),
    ],
)
def test_strip_shows_where_the_difference_is(diff, expected):
    assert parts.strip(limiter(diff, 0.0, 100.0), 5, parts.UNICODE) == expected


def test_strips_of_limiters_with_fewer_bounds():
    assert parts.strip(limiter(90.0, high=100.0), 5, parts.UNICODE) == "[·······●··|···]".replace(
        "[·······●··|", "[··········●|"
    )
    assert parts.strip(limiter(5.0, low=0.0), 5, parts.UNICODE)[4] == "|"
    assert parts.strip(limiter(7.0, 7.0, 7.0), 5, parts.UNICODE) == "[···|···●···|···]"
    assert parts.strip(limiter(min_size=10), 5, parts.UNICODE) == "[███████░░░░░░░|"
    assert parts.strip(limiter(min_size=10), 10, parts.UNICODE) == "[██████████████|"


def test_bars_and_spark_lines():
    assert [parts.bar(share, 4, parts.UNICODE) for share in (0.0, 0.001, 0.5, 1.0, 7.0)] == [
        "░░░░",
        "▏░░░",
        "██░░",
        "████",
        "████",
    ]
    assert parts.spark([0.0, 1.0, 8.0], 1, 4, parts.UNICODE) == " ▁▂█"
    assert parts.spark([9.0, 9.0, 0.0, 4.0, 4.0, 8.0, 8.0], 2, 3, parts.UNICODE) == "▅▅█"
    assert parts.spark([], 1, 3, parts.UNICODE) == "   "
    assert parts.spark([0.0, 0.0], 1, 3, parts.UNICODE) == " ▁▁"


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0.44, "0.4 s"), (59.9, "59 s"), (125, "2 min 5 s"), (7_260, "2 h 1 min"), (90_000, "1 d 1 h")],
)
def test_durations(number, expected):
    assert parts.seconds(number) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [(None, ""), (0.0, "0.0"), (9.94, "9.9"), (1234.4, "1,234"), (123_456.0, "123k"), (12_345_678.0, "12.3M")],
)
def test_rates(number, expected):
    assert parts.rate(number) == expected


@pytest.mark.parametrize(
    ("number", "expected"), [(0, "0"), (9_999, "9,999"), (12_345, "12.3k"), (1_000_000, "1M"), (2_500_000_000, "2.5G")]
)
def test_counts(number, expected):
    assert parts.count(number) == expected


@pytest.mark.parametrize(
    ("number", "expected"), [(0, "0"), (999, "999"), (1536, "1.5K"), (1 << 30, "1G"), (5 << 40, "5,120G")]
)
def test_sizes(number, expected):
    assert parts.size(number) == expected


def test_a_figure_that_the_server_does_not_tell_is_a_dash():
    unknown = {**table(0, data=None), "waiting_inserts": waiting(2, None), "waiting_samples": waiting(None, None)}
    for order in range(len(ORDERS)):
        [line] = [line for line in rendered(View(seen([unknown, table(1, "other")]), "a", order)) if "replay" in line]
        assert "2 inserts -" in line
        assert " -  " in line
