"""The documents of the HTTP port, compared with what clients have done."""

import http.client
import json
import logging
import os
import random
import re
import shutil
import sys
import time
import urllib.parse
from pathlib import Path

import numpy as np
import pytest
from behaviour_support import Background, draw, eventually, insert_values, make_table, program, run_program

import reverb
from reverb.data import column_names

COME_AND_GO = """
import sys
import reverb

client = reverb.Client(sys.argv[1])
client.server_info()
print("here", flush=True)
sys.stdin.read()
"""
HOSTILE = "<img src=x onerror=alert(1)>\u202e\n\x1b[31m\"\\'{}\u2028</script>"


class Api:
    """Asks the HTTP port of a server."""

    def __init__(self, server):
        address = urllib.parse.urlsplit(server.dashboard_url)
        self._place = (address.hostname, address.port)

    def ask(self, path, method="GET"):
        """Returns the status, the headers and the body of an answer."""
        connection = http.client.HTTPConnection(*self._place, timeout=20)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def get(self, path):
        """Returns a document."""
        status, headers, body = self.ask(f"/api/v1/{path}")
        assert (status, headers["Content-Type"]) == (200, "application/json"), (path, body)
        return json.loads(body)

    def fail(self, path, expected):
        """Returns the reason of a failure."""
        status, _, body = self.ask(f"/api/v1/{path}")
        assert status == expected, (path, status, body)
        return json.loads(body)["error"]

    def table(self, number=0):
        return self.get("tables")["tables"][number]

    def column(self, table, key, number):
        """Returns a column of an item as an array."""
        status, headers, body = self.ask(f"/api/v1/tables/{table}/items/{key}/columns/{number}?raw")
        assert status == 200, body
        shape = [int(size) for size in headers["X-Reverb-Shape"].split(",") if size]
        if headers["X-Reverb-Dtype"] == "string":
            return np.array(json.loads(body), object).reshape(shape)
        dtype = headers["X-Reverb-Dtype"]
        if dtype == "bfloat16":
            ml_dtypes = pytest.importorskip("ml_dtypes")
            dtype = ml_dtypes.bfloat16
        return np.frombuffer(body, dtype).reshape(shape)


@pytest.fixture
def start():
    """Starts servers with an HTTP port: `start(table, ...)` returns the server and its API."""
    servers = []

    def start(*tables, **options):
        servers.append(reverb.Server(tables=list(tables), http_port=0, **options))
        return servers[-1], Api(servers[-1])

    yield start
    for server in servers:
        server.stop()


def test_the_server_tells_its_addresses_and_its_process(start):
    begun = time.time()
    server, api = start(make_table())
    told = api.get("server")
    assert (told["state"], told["version"], told["loading"]) == ("serving", reverb.__version__, None)
    assert told["dashboard_url"] == server.dashboard_url
    assert f"127.0.0.1:{server.port}" in told["addresses"]
    assert any(address.startswith("unix:") for address in told["addresses"])
    assert begun - 5 < told["started_at"] <= told["now"] <= time.time() + 5
    assert told["resident_bytes"] is None or told["resident_bytes"] > 1 << 20
    assert told["cpu_seconds"] > 0


def test_tables_tell_what_clients_did(serve):
    client = serve(make_table("a", max_size=3, max_times_sampled=5), make_table("b", sampler="uniform"), http_port=0)
    api = Api(serve.server)
    insert_values(client, range(5), "a")
    draw(client, 2, "a")
    one, other = api.get("tables")["tables"]
    assert (one["number"], one["name"], one["sampler"], one["remover"]) == (0, "a", "fifo", "fifo")
    assert (one["items"], one["max_items"], one["inserts"], one["samples"]) == (3, 3, 5, 2)
    assert (one["max_times_sampled"], one["unique_samples"]) == (5, 1)
    assert one["removals"] == {"max_size": 2, "max_bytes": 0, "max_times_sampled": 0, "delete": 0, "reset": 0}
    assert (other["sampler"], other["items"], other["signature"]) == ("uniform", 0, None)
    client.reset("a")
    assert api.table()["removals"]["reset"] == 3


def test_limiters_are_told_in_words(start):
    ratio = reverb.rate_limiters.SampleToInsertRatio(2.0, 1, (0.0, 30.0))
    server, api = start(make_table("ratio", limiter=ratio), reverb.Table.queue("queue", 10), make_table("open"))
    client = reverb.Client(f"localhost:{server.port}")
    for _ in range(10):
        client.insert(np.int64(1), {"ratio": 1.0})
    client.insert(np.int64(1), {"queue": 1.0})
    limiters = [table["limiter"] for table in api.get("tables")["tables"]]
    assert [limiter["kind"] for limiter in limiters] == ["ratio", "queue", "min_size"]
    assert (limiters[0]["diff"], limiters[0]["min_diff"], limiters[0]["max_diff"]) == (20.0, 0.0, 30.0)
    assert (limiters[0]["samples_allowed"], limiters[0]["inserts_allowed"]) == (20, 5)
    assert (
        limiters[0]["sentence"]
        == "actors are 10 items ahead (up to 15 allowed); 20 more samples or 5 more inserts may go"
    )
    assert [limiters[0][name] for name in ("least_ahead", "ahead", "most_ahead")] == [0.0, 10.0, 15.0]
    assert limiters[1]["sentence"] == "1 item may be taken; room for 9 more"
    assert limiters[2]["sentence"] == "the table is empty; 1 more insert until a sample may go"
    assert (limiters[2]["min_diff"], limiters[2]["max_diff"]) == (None, None)
    bounds = [(limiter["insert_bound"], limiter["sample_bound"]) for limiter in limiters]
    assert bounds == [
        ("actors may be at most 15 items ahead", "the learner must not be ahead"),
        ("the queue is full at 10 items", "the queue is empty"),
        (None, None),
    ]


def test_a_limiter_speaks_of_the_batch_that_waits(serve_far):
    ratio = reverb.rate_limiters.SampleToInsertRatio(8.0, 1, (0.0, 80.0))
    client = serve_far(make_table("ratio", limiter=ratio), http_port=0)
    api = Api(serve_far.server)
    insert_values(client, [1], "ratio")
    background = Background(lambda: client.sample_batch("ratio", 264))
    # Eight are drawn already, and wait for the others.
    expected = "neither side is ahead; 32 more inserts until 256 samples may go"
    eventually(lambda: api.table()["limiter"]["sentence"] == expected)
    [wait] = api.get("waits")["waits"]
    assert wait["reason"].endswith(" waits: 32 more inserts until 256 samples may go; the learner must not be ahead")
    insert_values(client, range(32), "ratio")
    background.result()
    inserts = Background(lambda: client.insert_batch(np.arange(14), {"ratio": 1.0}))
    expected = "actors are 10 items ahead (up to 10 allowed); 32 more samples until 4 inserts may go"
    eventually(lambda: api.table()["limiter"]["sentence"] == expected)
    client.sample_batch("ratio", 32)
    inserts.result()


def test_columns_have_the_names_that_python_gives_them(start):
    signature = {
        "obs": {"image": reverb.TensorSpec((84, None, 3), np.uint8), "z/y": reverb.TensorSpec((), np.float32)},
        "obs/z": (reverb.TensorSpec((2,), np.bool_), [reverb.TensorSpec((), np.float64)]),
        "b<i>": reverb.TensorSpec((), np.str_),
    }
    _, api = start(make_table("a", signature=signature), make_table("b", signature=reverb.TensorSpec((2,), np.int64)))
    first, second = (api.table(number)["signature"] for number in (0, 1))
    assert [column["name"] for column in first] == column_names.column_names(signature, len(first))
    assert [column["number"] for column in first] == list(range(len(first)))
    by_name = {column["name"]: column for column in first}
    assert by_name["data/obs/image"]["shape"] == [84, None, 3]
    assert by_name["data/obs/image"]["dtype"] == "uint8"
    assert {column["dtype"] for column in first} == {"uint8", "float32", "bool", "float64", "string"}
    assert second == [{"number": 0, "name": "data", "dtype": "int64", "shape": [2]}]


def test_hostile_names_arrive_as_they_are(start):
    table = make_table(HOSTILE, signature={HOSTILE: reverb.TensorSpec((), np.int64)})
    server, api = start(table)
    reverb.Client(f"localhost:{server.port}").insert({HOSTILE: np.int64(3)}, {HOSTILE: 1.0})
    assert api.table()["name"] == HOSTILE
    assert api.table()["signature"][0]["name"] == f"data/{HOSTILE}"
    [item] = api.get("tables/0/items")["items"]
    assert item["columns"][0]["name"] == f"data/{HOSTILE}"


COLUMNS = {
    "image": np.random.default_rng(1).integers(0, 255, (12, 8, 3), np.uint8),
    "stack": np.random.default_rng(2).integers(0, 255, (84, 84, 4), np.uint8),
    "scalar": np.float32(2.5),
    "flag": np.bool_(True),
    "double": np.array([[np.nan, np.inf], [-0.0, 1e300]]),
    "empty": np.zeros((0, 3), np.int16),
    "complex": np.array([1 + 2j], np.complex64),
    "text": np.array("<b>\u202e &amp; ü".encode()),
    "texts": np.array([[b"a", b"\xff\xfe"], [b"", b"long" * 100]], object),
}


def test_columns_of_items_are_the_arrays_that_were_inserted(serve):
    client = serve(make_table(), http_port=0)
    api = Api(serve.server)
    client.insert(COLUMNS, {"table": 3.5})
    [item] = api.get("tables/0/items?count=1")["items"]
    assert (item["priority"], item["times_sampled"]) == (3.5, 0)
    assert abs(item["inserted_at"] - time.time()) < 60
    assert item["bytes"] >= COLUMNS["stack"].nbytes
    for column, name in zip(item["columns"], sorted(COLUMNS), strict=True):
        expected = np.asarray(COLUMNS[name])
        described = api.get(f"tables/0/items/{item['key']}/columns/{column['number']}")
        assert described == column
        got = api.column(0, item["key"], column["number"])
        # `insert` adds the time axis.
        assert got.shape == tuple(column["shape"]) == (1, *expected.shape), name
        assert column["steps"] == 1
        if got.dtype == object:
            texts = (
                [text.decode(errors="replace") for text in expected.ravel()]
                if expected.shape
                else [expected.item().decode()]
            )
            assert got.ravel().tolist() == texts
        else:
            np.testing.assert_array_equal(got[0], expected, name)
            assert got.dtype == expected.dtype
    assert api.table()["samples"] == 0


def test_bfloat16_and_series_of_trajectories(start):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    server, api = start(make_table())
    client = reverb.Client(f"localhost:{server.port}")
    values = np.arange(5).astype(ml_dtypes.bfloat16)
    with client.trajectory_writer(5) as writer:
        for value in values:
            writer.append({"a": value, "b": np.full(3, value, np.float32)})
        writer.create_item("table", 1.0, {"a": writer.history["a"][-5:], "b": writer.history["b"][-1]})
    [item] = api.get("tables/0/items")["items"]
    assert [column["shape"] for column in item["columns"]] == [[5], [3]]
    assert [column["steps"] for column in item["columns"]] == [5, None]
    assert [column["dtype"] for column in item["columns"]] == ["bfloat16", "float32"]
    np.testing.assert_array_equal(api.column(0, item["key"], 0), values)
    np.testing.assert_array_equal(api.column(0, item["key"], 1), np.full(3, 4, np.float32))


@pytest.mark.parametrize("selector", ["fifo", "uniform", "max_heap"])
def test_items_come_in_the_order_that_was_asked_for(start, selector):
    server, api = start(make_table(sampler=selector, remover=selector, max_size=5000))
    client = reverb.Client(f"localhost:{server.port}")
    priorities = [float(p) for p in np.random.default_rng(3).permutation(3000)]
    client.insert_batch(np.arange(3000), priorities={"table": priorities})

    def values(query):
        items = api.get(f"tables/0/items?{query}")["items"]
        return [int(api.column(0, item["key"], 0).item()) for item in items]

    assert values("order=newest&count=3") == [2999, 2998, 2997]
    assert values("order=oldest&count=3") == [0, 1, 2]
    assert values("order=highest&count=4") == list(np.argsort(priorities)[::-1][:4])
    assert len(values("")) == 20
    assert api.table()["samples"] == 0


def test_an_item_is_found_by_its_key_until_it_is_gone(start):
    server, api = start(make_table(max_size=1))
    client = reverb.Client(f"localhost:{server.port}")
    insert_values(client, [7])
    key = api.get("tables/0/items")["items"][0]["key"]
    assert api.get(f"tables/0/items?key={key}")["items"][0]["key"] == key
    insert_values(client, [8])
    assert "may have left it" in api.fail(f"tables/0/items?key={key}", 404)
    assert "may have left it" in api.fail(f"tables/0/items/{key}/columns/0?raw", 404)


def test_what_is_not_there_or_not_valid_is_named(start):
    server, api = start(make_table())
    insert_values(reverb.Client(f"localhost:{server.port}"), [7])
    key = api.get("tables/0/items")["items"][0]["key"]
    assert api.fail("tables/1/items", 404) == "there is no table 1; the server has 1, numbered from 0"
    assert "has no column 1" in api.fail(f"tables/0/items/{key}/columns/1?raw", 404)
    assert "order: expected newest, oldest or highest, got `best`" in api.fail("tables/0/items?order=best", 400)
    assert "a number from 1 to 100" in api.fail("tables/0/items?count=101", 400)
    assert "count: expected a number" in api.fail("tables/0/items?count=-1", 400)
    assert "table: expected a number" in api.fail("tables/table/items", 400)
    assert "no such address" in api.fail("nothing", 404)


def test_a_large_column_is_refused_and_the_others_are_not(start):
    server, api = start(make_table())
    client = reverb.Client(f"localhost:{server.port}")
    client.insert({"a": np.zeros((17 << 20,), np.uint8), "b": np.zeros((16 << 20,), np.uint8)}, {"table": 1.0})
    key = api.get("tables/0/items")["items"][0]["key"]
    assert "16777216 bytes can be shown" in api.fail(f"tables/0/items/{key}/columns/0?raw", 413)
    assert api.column(0, key, 1).nbytes == 16 << 20


def test_histograms_count_items_and_estimate_large_tables(start):
    server, api = start(make_table(max_size=200_000, sampler="uniform", remover="uniform"), make_table("empty"))
    client = reverb.Client(f"localhost:{server.port}")
    insert_values(client, range(4), priority=[0.0, 1.0, 2.0, 1000.0])
    told = api.get("tables/0/histograms")
    assert (told["items"], told["looked_at"]) == (4, 4)
    for name in ("priority", "age_seconds", "times_sampled"):
        edges, counts = told[name]["edges"], told[name]["counts"]
        assert (len(edges), sum(counts)) == (len(counts) + 1, 4), name
        assert edges == sorted(set(edges)), name
    assert told["priority"]["edges"][0] == 0.0
    assert told["priority"]["counts"][0] == 1
    assert api.get("tables/1/histograms")["looked_at"] == 0
    for start_of in range(0, 100_000, 10_000):
        client.insert_batch(np.arange(start_of, start_of + 10_000), priorities={"table": 1.0})
    # Answers are kept for a while.
    assert api.get("tables/0/histograms") == told
    eventually(lambda: api.get("tables/0/histograms")["items"] > 4)
    told = api.get("tables/0/histograms")
    assert told["items"] == 100_004
    assert 60_000 < told["looked_at"] <= 65_536
    assert sum(told["times_sampled"]["counts"]) == told["looked_at"]
    assert told["at"] <= time.time()


def test_history_has_a_point_a_second_and_a_cursor(start):
    server, api = start(make_table(), make_table("other"))
    client = reverb.Client(f"localhost:{server.port}")
    insert_values(client, [1, 2, 3])
    eventually(lambda: api.get("history")["tables"] and api.get("history")["tables"][0]["items"][-1] == 3)
    first = api.get("history")
    tables = first["tables"]
    assert [table["number"] for table in tables] == [0, 1]
    assert first["next"] == len(first["times"]) == len(tables[0]["items"]) == len(first["resident_bytes"])
    assert (tables[0]["inserts"][-1], tables[0]["samples"][-1], tables[1]["items"][-1]) == (3, 0, 0)
    eventually(lambda: api.get(f"history?since={first['next']}")["times"])
    rest = api.get(f"history?since={first['next']}")
    assert rest["times"][0] > first["times"][-1]
    assert len(rest["times"]) == rest["next"] - first["next"]
    assert api.get("history?since=999999")["times"][: len(first["times"])] == first["times"]
    assert "since: expected a number" in api.fail("history?since=x", 400)


def test_history_tells_what_happened(start, tmp_path):
    checkpointer = reverb.checkpointers.DefaultCheckpointer(str(tmp_path))
    server, api = start(make_table("<i>", max_size=10), checkpointer=checkpointer)
    told = lambda: [(event["kind"], event["table"], event["text"]) for event in api.get("history")["events"]]  # noqa: E731
    eventually(told)
    assert told() == [("start", None, "the server was started")]
    with program(COME_AND_GO, f"localhost:{server.port}") as client:
        assert client.line() == "here"
        eventually(lambda: told()[1:])
    eventually(lambda: told()[2:])
    # Connections of the server's own process are none, and those of a program that is known are nothing new.
    client = reverb.Client(f"localhost:{server.port}")
    insert_values(client, [1, 2, 3], "<i>")
    client.configure_table("<i>", max_size=20, max_times_sampled=4)
    eventually(lambda: told()[3:])
    limiter = reverb.rate_limiters.SampleToInsertRatio(2.0, 1, error_buffer=3.0)
    client.configure_table("<i>", rate_limiter=limiter)
    eventually(lambda: told()[4:])
    client.checkpoint()
    eventually(lambda: told()[5:])
    # A program has the name of its interpreter's file.
    python = Path(sys.executable).name
    assert told()[1:] == [
        ("client_came", None, f"{python} connected"),
        ("client_left", None, f"{python} left"),
        ("options", 0, "<i>: max_size 20, was 10; max_times_sampled 4, was no limit"),
        ("options", 0, "<i>: samples_per_insert 2, was 1; error_buffer 3, was no limit"),
        ("save", None, "a checkpoint was saved"),
    ]
    times = [event["at"] for event in api.get("history")["events"]]
    assert times == sorted(times)
    assert api.get("server")["started_at"] == times[0]
    history = api.get("history")
    assert api.get(f"history?since={history['next']}")["events"] == []
    server.stop()
    server, api = start(make_table("<i>"), checkpointer=checkpointer)
    eventually(lambda: told()[1:])
    (_, restore) = events = told()
    assert events[0] == ("start", None, "the server was started")
    # The checkpoint that was loaded is told, although the next save removes it.
    assert re.fullmatch(r"restored 3 items, saved \d+ s before the start", restore[2])
    client = reverb.Client(f"localhost:{server.port}")
    loaded, saved_at = (api.get("checkpoints")[name] for name in ("restored_from", "restored_saved_at"))
    client.checkpoint()
    checkpoints = api.get("checkpoints")
    assert loaded not in {checkpoint["path"] for checkpoint in checkpoints["checkpoints"]}
    assert (checkpoints["restored_from"], checkpoints["restored_saved_at"]) == (loaded, saved_at)
    history = api.get("history")
    restored = history["events"][1]["at"]
    since = [index for index, at in enumerate(history["times"]) if at >= restored]
    assert [history["tables"][0]["items"][index] for index in since] == [3] * len(since)


def test_history_tells_of_failed_saves(start, tmp_path):
    checkpointer = reverb.checkpointers.DefaultCheckpointer(str(tmp_path / "folder"))
    server, api = start(make_table(), checkpointer=checkpointer)
    eventually(lambda: api.get("history")["events"])
    client = reverb.Client(f"localhost:{server.port}")
    shutil.rmtree(tmp_path / "folder")
    (tmp_path / "folder").write_text("no folder")
    with pytest.raises(reverb.errors.StorageError):
        client.checkpoint()
    eventually(lambda: api.get("history")["events"][1:])
    [_, event] = api.get("history")["events"]
    assert event["kind"] == "save_failed"
    assert event["text"] == f"a save failed: {api.get('checkpoints')['last_error']}"[:200]


def test_the_log_tells_of_starts_resets_and_saves(start, tmp_path):
    before = [line["number"] for line in Api(start(make_table())[0]).get("log")["lines"]]
    since = before[-1]
    checkpointer = reverb.checkpointers.DefaultCheckpointer(str(tmp_path))
    server, api = start(make_table("<i>"), checkpointer=checkpointer)
    client = reverb.Client(f"localhost:{server.port}")
    insert_values(client, [1], "<i>")
    client.reset("<i>")
    path = client.checkpoint()
    lines = api.get(f"log?since={since}")["lines"]
    messages = [line["message"] for line in lines]
    assert any(message.startswith(f"serves at 127.0.0.1, port {server.port};") for message in messages), messages
    assert "table `<i>` was reset; 1 items left it" in messages
    assert any(message.startswith(f"saved checkpoint {path} in ") for message in messages)
    assert all(line["level"] == "info" and line["at"] > 0 for line in lines)
    assert api.get(f"log?since={lines[-1]['number']}")["lines"] == []


def test_checkpoints_are_listed_with_size_time_and_duration(start, tmp_path):
    checkpointer = reverb.checkpointers.DefaultCheckpointer(str(tmp_path))
    server, api = start(make_table(), checkpointer=checkpointer)
    assert api.get("checkpoints")["checkpoints"] == []
    client = reverb.Client(f"localhost:{server.port}")
    insert_values(client, range(10))
    path = client.checkpoint()
    told = api.get("checkpoints")
    assert (told["path"], told["saves_ok"], told["saves_failed"]) == (str(tmp_path), 1, 0)
    assert (told["saving"], told["last_error"]) == (None, None)
    assert (told["restored_from"], told["restored_saved_at"]) == (None, None)
    [saved] = told["checkpoints"]
    assert (saved["path"], saved["is_verified"]) == (path, True)
    assert saved["size_bytes"] == sum(file.stat().st_size for file in Path(path).iterdir())
    assert saved["duration_seconds"] > 0
    assert abs(saved["saved_at"] - time.time()) < 60
    server.stop()
    server, api = start(make_table(), checkpointer=checkpointer)
    told = api.get("checkpoints")
    assert (told["restored_from"], told["restored_saved_at"]) == (path, saved["saved_at"])
    [again] = told["checkpoints"]
    assert (again["size_bytes"], again["duration_seconds"]) == (saved["size_bytes"], None)


def test_any_address_is_answered_and_the_server_goes_on(start):
    server, api = start(make_table())
    insert_values(reverb.Client(f"localhost:{server.port}"), [7])
    key = api.get("tables/0/items")["items"][0]["key"]
    rng = random.Random(5)
    words = [
        "tables", "0", "1", "items", key, "columns", "histograms", "history", "log", "raw", "..", "%00", "%2e%2e",
        "-1", "18446744073709551616", "%ff", "é".encode().decode("latin1"), "a" * 300, "", "server", "clients",
    ]  # fmt: skip
    fields = ["count", "order", "since", "key", "raw", "%", "&&", "=", "order=newest", "count=5", "key=1"]
    for _ in range(1500):
        path = "/".join(urllib.parse.quote(rng.choice(words), safe="%.") for _ in range(rng.randrange(1, 6)))
        query = "&".join(rng.choice(fields) + rng.choice(["", "=", "=x", "=7"]) for _ in range(rng.randrange(3)))
        status, _, _ = api.ask(f"/api/v1/{path}?{query}")
        assert status in (200, 400, 404, 413, 414), (status, path, query)
    assert api.get("server")["state"] == "serving"


def test_clients_are_told_with_what_they_did(serve, road):
    client = serve(make_table(), http_port=0)
    api = Api(serve.server)
    insert_values(client, range(5))
    draw(client, 3)
    transport = {"same_process": "same_process", "unix": "unix", "tcp": "tcp"}[road]
    eventually(lambda: sum(told["samples"] for told in of_transport(api, transport)) >= 3)
    clients = of_transport(api, transport)
    assert sum(told["inserts"] for told in clients) == 5
    assert all(f":{os.getpid()})" in told["name"] for told in clients if told["inserts"] or told["samples"])
    assert all(told["since"] <= time.time() + 5 for told in clients)
    if road != "same_process":
        assert sum(told["receive_bytes"] for told in clients) > 0
        assert api.get("server")["connections"] == sum(told["connections"] for told in clients)


def of_transport(api, transport):
    return [told for told in api.get("clients")["clients"] if told["transport"] == transport]


def test_each_waiting_request_is_told_with_its_client(serve_far):
    client = serve_far(make_table("<b>", limiter=reverb.rate_limiters.MinSize(3)), http_port=0)
    api = Api(serve_far.server)
    background = Background(lambda: list(client.sample("<b>", num_samples=1, emit_timesteps=False)))
    eventually(lambda: api.get("waits")["waits"])
    [wait] = api.get("waits")["waits"]
    assert (wait["table"], wait["table_name"], wait["operation"]) == (0, "<b>", "sample")
    assert wait["transport"] == serve_far.road
    assert str(os.getpid()) in wait["client_name"]
    assert wait["client"] in [told["id"] for told in api.get("clients")["clients"]]
    assert "3 more items until samples may go (0 of 3 so far)" in wait["reason"]
    told = api.table()["waiting_samples"]
    assert (told["count"], told["longest_seconds"] > 0) == (1, True)
    insert_values(client, [1, 2, 3], "<b>")
    background.result()
    eventually(lambda: api.get("waits")["waits"] == [])


def test_records_of_resets_and_saves_have_fields(start, tmp_path, caplog):
    checkpointer = reverb.checkpointers.DefaultCheckpointer(str(tmp_path))
    server, _ = start(make_table(HOSTILE), checkpointer=checkpointer)
    client = reverb.Client(f"localhost:{server.port}")
    with caplog.at_level(logging.INFO, logger="reverb"):
        client.reset(HOSTILE)
        path = client.checkpoint()
        eventually(lambda: {"table", "path"} <= {name for record in records(caplog) for name in record.fields})
    by_field = {name: record for record in records(caplog) for name in record.fields}
    assert by_field["table"].fields["table"] == HOSTILE
    shown = HOSTILE.translate({10: "\\n", 27: "\\x1b", 0x202E: "\\u202e", 0x2028: "\\u2028"})
    assert by_field["table"].getMessage() == f"table `{shown}` was reset; 0 items left it"
    saved = by_field["path"]
    assert saved.fields["path"] == path
    assert saved.fields["bytes"] > 0
    assert saved.fields["seconds"] > 0
    assert saved.getMessage().startswith(f"saved checkpoint {path} in ")


def records(caplog):
    ours = [record for record in caplog.records if record.name == "reverb" and hasattr(record, "fields")]
    # What the server says of all its tables is another subject.
    return [one for one in ours if not one.getMessage().startswith(("Flowing", "Idle", "Stalled", "Waiting"))]


@pytest.mark.slow
def test_records_of_long_waits_have_fields(serve_far, caplog):
    client = serve_far(make_table("replay", limiter=reverb.rate_limiters.MinSize(1000)), http_port=0)
    # A client of another process, whose waits the server logs.
    source = """
    import sys
    import reverb
    client = reverb.Client(sys.argv[1])
    try:
        client.sample_batch("replay", 1, timeout=12)
    except reverb.errors.DeadlineExceededError:
        print("late")
    """
    with caplog.at_level(logging.INFO, logger="reverb"):
        out, *_ = run_program(source, serve_far.address)
        eventually(lambda: records(caplog))
        assert "late" in str(out)
        with pytest.raises(reverb.errors.DeadlineExceededError):
            client.sample_batch("replay", 1, timeout=12)
        eventually(lambda: len(records(caplog)) >= 2)
    theirs, ours = records(caplog)
    assert (theirs.levelname, ours.levelname) == ("INFO", "WARNING")
    assert (theirs.fields["table"], theirs.fields["operation"]) == ("replay", "sample")
    assert theirs.fields["waited_s"] >= 10
    assert theirs.fields["client"] in theirs.getMessage()
    assert "1,000 more items until samples may go" in theirs.getMessage()


def test_a_checkpoint_that_loads_is_told_before_the_server_serves(start, tmp_path):
    checkpointer = reverb.checkpointers.DefaultCheckpointer(str(tmp_path))
    server, api = start(make_table(max_size=300_000), checkpointer=checkpointer)
    client = reverb.Client(f"localhost:{server.port}")
    for _ in range(20):
        client.insert_batch(np.arange(10_000), priorities={"table": 1.0})
    path = client.checkpoint()
    server.stop()
    _, api = start(make_table(max_size=300_000), checkpointer=checkpointer)
    assert api.get("server")["loading"] is None
    assert api.get("checkpoints")["restored_from"] == path
    assert any(f"loaded checkpoint {path}" in line["message"] for line in api.get("log")["lines"])
