"""`/metrics`: the format, and numbers that are those of what clients did."""

import math
import pathlib
import re
import threading
import time

import behaviour_support as support
import metrics_support
import numpy as np
import pytest
from metrics_support import Metrics

import reverb
from reverb import rate_limiters

HOSTILE = ['a"b\\c', "two\nlines", "<b>#</b> EOF", "é\\n"]
REASONS = ("max_size", "max_bytes", "max_times_sampled", "delete", "reset")


def test_the_text_is_open_metrics_and_ends_with_its_mark(start):
    server, _ = start(support.make_table())
    media_type, text = metrics_support.scrape(server)
    assert media_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert text.endswith("\n# EOF\n")
    assert text.count("# EOF") == 1


def test_each_family_is_described_once_and_ends_with_its_unit(start):
    server, _ = start(support.make_table(), support.make_table("other"))
    _, text = metrics_support.scrape(server)
    described = re.findall(r"^# HELP (\S+) \S", text, re.MULTILINE)
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert sorted(described) == sorted(types)
    assert len(described) == len(set(described))
    for name, unit in re.findall(r"^# UNIT (\S+) (\S+)$", text, re.MULTILINE):
        assert name.endswith(f"_{unit}")
        assert unit in ("seconds", "bytes")
    suffixes = {"counter": {"_total"}, "info": {"_info"}, "gauge": {""}, "histogram": {"_sum", "_count", "_bucket"}}
    allowed = {name + suffix for name, kind in types.items() for suffix in suffixes[kind]}
    assert {name for name, _ in metrics_support.samples(text)} <= allowed


def test_all_who_do_not_name_open_metrics_get_plain_text(start):
    server, _ = start(support.make_table())
    for accept in ("text/plain", "*/*", "text/html,application/xhtml+xml,*/*;q=0.8"):
        media_type, text = metrics_support.scrape(server, accept)
        assert media_type == "text/plain; version=0.0.4; charset=utf-8"
        assert "# EOF" not in text
        assert "# TYPE reverb_table_inserts_total counter\n" in text
        assert metrics_support.samples(text).keys() == metrics_support.samples(metrics_support.scrape(server)[1]).keys()
    prometheus = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    assert metrics_support.scrape(server, prometheus)[0].startswith(metrics_support.OPEN_METRICS)


def test_names_of_tables_are_escaped(start):
    server, client = start(*map(support.make_table, HOSTILE))
    for count, name in enumerate(HOSTILE, start=1):
        support.insert_values(client, range(count), name)
    metrics = Metrics(server)
    assert [metrics("reverb_table_items", table=name) for name in HOSTILE] == [1, 2, 3, 4]


def test_counters_are_what_a_client_did(start):
    server, client = start(support.make_table(max_size=10), support.make_table("once", max_times_sampled=1))
    started = time.time()
    support.insert_values(client, range(15))
    keys = [sample.info.key for sample in support.draw(client, 4)]
    client.mutate_priorities("table", updates={keys[0]: 2.0}, deletes=[])
    client.mutate_priorities("table", updates={}, deletes=[keys[-1]])
    support.insert_values(client, range(6), "once")
    support.draw_values(client, 4, "once")
    metrics = Metrics(server)
    assert metrics("reverb_table_inserts_total", table="table") == 15
    assert metrics("reverb_table_samples_total", table="table") == 4
    assert metrics("reverb_table_items", table="table") == 9
    assert metrics("reverb_table_max_items", table="table") == 10
    assert metrics("reverb_table_removals_total", table="table", reason="max_size") == 5
    assert metrics("reverb_table_removals_total", table="table", reason="delete") == 1
    assert metrics("reverb_table_removals_total", table="once", reason="max_times_sampled") == 4
    assert metrics("reverb_table_items", table="once") == 2
    for table in ("table", "once"):
        removed = sum(metrics("reverb_table_removals_total", table=table, reason=reason) for reason in REASONS)
        inserted, left = metrics("reverb_table_inserts_total", table=table), metrics("reverb_table_items", table=table)
        assert removed == inserted - left
    assert metrics("reverb_table_priority_updates_total", table="table") == 1
    # All four draws were of the oldest item, which was then deleted.
    assert metrics("reverb_table_unsampled_removals_total", table="table") == 5
    assert metrics("reverb_table_removed_times_sampled_bucket", table="table", le="0.5") == 5
    assert metrics("reverb_table_removed_times_sampled_sum", table="table") == 4
    assert metrics("reverb_table_unsampled_removals_total", table="once") == 0
    assert metrics("reverb_table_removed_times_sampled_count", table="once") == 4
    assert metrics("reverb_table_removed_times_sampled_sum", table="once") == 4
    assert metrics("reverb_table_removed_times_sampled_bucket", table="once", le="0.5") == 0
    assert metrics("reverb_table_removed_times_sampled_bucket", table="once", le="1.0") == 4
    assert metrics("reverb_table_sample_age_seconds_count", table="table") == 4
    assert metrics("reverb_table_sample_age_seconds_bucket", table="table", le="+Inf") == 4
    assert metrics("reverb_table_insert_bytes_total", table="table") == 15 * 8
    assert metrics("reverb_table_sample_bytes_total", table="table") == 4 * 8
    assert (
        metrics("reverb_table_bytes", table="table") == metrics("reverb_table_referenced_bytes", table="table") == 9 * 8
    )
    for name in ("insert", "sample"):
        at = metrics(f"reverb_table_last_{name}_timestamp_seconds", table="once")
        assert started - 1 < at <= time.time() + 1
    assert metrics("process_start_time_seconds") <= started + 1
    assert metrics("process_resident_memory_bytes") < metrics("reverb_memory_limit_bytes")


def grown(server, before=None):
    """The counters and histograms of tables, none of which has fallen."""
    _, text = metrics_support.scrape(server)
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    growing = tuple(name for name, kind in types.items() if kind in ("counter", "histogram"))
    values = {key: value for key, value in metrics_support.samples(text).items() if key[0].startswith("reverb_table_")}
    counters = {key: value for key, value in values.items() if key[0].startswith(growing)}
    assert len(counters) > 40
    fallen = {key: (value, counters[key]) for key, value in (before or {}).items() if counters[key] < value}
    assert not fallen
    return counters


def test_no_counter_falls_when_draws_go_back_or_a_table_is_reset(start):
    server, client = start(reverb.Table.queue("queue", 200), support.make_table())
    support.insert_values(client, range(100), "queue")
    support.insert_values(client, range(7))
    there = reverb.Client(f"ipv4:127.0.0.1:{server.port}")
    with reverb.loaders.NumpyLoader(there, "queue", batch_size=4, prefetch=3) as loader:
        next(loader)
        support.eventually(lambda: Metrics(server)("reverb_table_items", table="queue") == 84)
        before = grown(server)
    support.eventually(lambda: Metrics(server)("reverb_table_undelivered_samples", table="queue") == 0)
    left = Metrics(server)("reverb_table_items", table="queue")
    assert left > 84
    before = grown(server, before)
    metrics = Metrics(server)
    assert metrics("reverb_table_samples_total", table="queue") == 16
    assert metrics("reverb_table_returned_samples_total", table="queue") == left - 84
    assert metrics("reverb_table_returned_items_total", table="queue") == left - 84
    assert metrics("reverb_table_limiter_samples", table="queue") == 100 - left
    assert support.num_samples(client, "queue") == 100 - left
    support.draw(client, 3)
    before = grown(server, before)
    client.reset("table")
    client.reset("queue")
    before = grown(server, before)
    support.insert_values(client, range(2))
    support.draw(client, 5)
    metrics = Metrics(server)
    grown(server, before)
    assert metrics("reverb_table_inserts_total", table="table") == 9
    assert metrics("reverb_table_samples_total", table="table") == 8
    assert metrics("reverb_table_limiter_inserts", table="table") == 2
    assert metrics("reverb_table_limiter_samples", table="table") == 5
    assert metrics("reverb_table_unique_samples", table="table") >= 1


def test_counters_start_at_0_after_a_restore_while_totals_of_the_table_go_on(start, tmp_path):
    saves = {"checkpointer": reverb.checkpointers.DefaultCheckpointer(str(tmp_path))}
    server, client = start(support.make_table(), **saves)
    support.insert_values(client, range(5))
    support.draw(client, 3)
    client.checkpoint()
    server.stop()
    server, client = start(support.make_table(), **saves)
    metrics = Metrics(server)
    assert metrics("reverb_table_limiter_inserts", table="table") == 5
    assert metrics("reverb_table_limiter_samples", table="table") == 3
    for name in ("inserts", "samples", "returned_samples", "insert_bytes", "sample_bytes"):
        assert metrics(f"reverb_table_{name}_total", table="table") == 0
    info = support.info_of(client).rate_limiter_info
    assert (info.insert_stats.completed, info.sample_stats.completed) == (5, 3)


def test_bounds_of_the_limiter_are_infinite_where_it_has_none(start):
    ratio = rate_limiters.SampleToInsertRatio(samples_per_insert=4.0, min_size_to_sample=2, error_buffer=(3.0, 13.0))
    server, client = start(support.make_table(), support.make_table("ratio", limiter=ratio))
    support.insert_values(client, [1, 2], "ratio")
    support.draw(client, 1, "ratio")
    metrics = Metrics(server)
    assert metrics("reverb_table_limiter_min_diff", table="table") == -math.inf
    assert metrics("reverb_table_limiter_max_diff", table="table") == math.inf
    assert metrics("reverb_table_limiter_min_size", table="table") == 1
    assert metrics("reverb_table_limiter_min_diff", table="ratio") == 3
    assert metrics("reverb_table_limiter_max_diff", table="ratio") == 13
    assert metrics("reverb_table_limiter_samples_per_insert", table="ratio") == 4
    assert metrics("reverb_table_limiter_diff", table="ratio") == 2 * 4 - 1


def test_a_limit_in_bytes_is_absent_where_there_is_none(start):
    server, _ = start(support.make_table(), support.make_table("limited", max_bytes=1 << 20))
    assert Metrics(server).named("reverb_table_max_bytes") == {frozenset({("table", "limited")}): 1 << 20}


def test_a_waiting_request_is_seen(start):
    server, client = start(support.make_table())
    waits = support.Background(support.draw_values, client)
    labels = {"table": "table", "operation": "sample"}
    support.eventually(lambda: Metrics(server)("reverb_table_waiting_requests", **labels) == 1)
    support.eventually(lambda: Metrics(server)("reverb_table_blocked_seconds_total", **labels) > 0)
    assert Metrics(server)("reverb_table_waiting_requests", table="table", operation="insert") == 0
    longest = Metrics(server)("reverb_table_longest_wait_seconds", **labels)
    assert longest > 0
    support.insert_values(client, [7])
    assert waits.result() == [7]
    metrics = Metrics(server)
    assert metrics("reverb_table_waiting_requests", **labels) == 0
    assert metrics("reverb_table_longest_wait_seconds", **labels) == 0
    assert metrics("reverb_table_wait_seconds_count", **labels) == 1
    assert metrics("reverb_table_wait_seconds_sum", **labels) >= longest
    assert metrics("reverb_table_wait_seconds_count", table="table", operation="insert") == 0


def test_the_verdict_is_told_of_the_server_and_of_each_table(start):
    server, client = start(support.make_table(stall_after=0.1), support.make_table("other"))
    states = {"flowing": 0, "waiting": 0, "stalled": 0, "idle": 1}
    labelled = {frozenset({("state", state)}): value for state, value in states.items()}
    assert Metrics(server).named("reverb_progress") == labelled
    waits = support.Background(support.draw_values, client)
    support.eventually(lambda: Metrics(server)("reverb_progress", state="stalled") == 1)
    metrics = Metrics(server)
    assert sum(metrics.named("reverb_progress").values()) == 1
    assert (metrics("reverb_table_stalled", table="table"), metrics("reverb_table_stalled", table="other")) == (1, 0)
    support.insert_values(client, [7])
    assert waits.result() == [7]
    support.eventually(lambda: Metrics(server)("reverb_table_stalled", table="table") == 0)


def test_a_checkpoint_is_counted_and_described(start, tmp_path):
    checkpointer = reverb.checkpointers.DefaultCheckpointer(str(tmp_path / "saved"))
    server, client = start(support.make_table(), checkpointer=checkpointer)
    support.insert_values(client, range(3))
    before, metrics = time.time(), Metrics(server)
    assert metrics("reverb_checkpoints_total", result="ok") == 0
    assert "reverb_checkpoint_last_size_bytes" not in {name for name, _ in metrics.values}
    path = pathlib.Path(client.checkpoint())
    metrics = Metrics(server)
    assert metrics("reverb_checkpoints_total", result="ok") == 1
    assert metrics("reverb_checkpoints_total", result="failed") == 0
    assert metrics("reverb_checkpoint_in_progress") == 0
    assert before - 1 < metrics("reverb_checkpoint_last_success_timestamp_seconds") <= time.time() + 1
    assert 0 < metrics("reverb_checkpoint_last_duration_seconds") < 60
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    assert metrics("reverb_checkpoint_last_size_bytes") == size


def test_connections_and_calls_are_counted(start):
    server, _ = start(support.make_table())
    client = reverb.Client(f"ipv4:127.0.0.1:{server.port}")
    support.insert_values(client, range(5))
    client.insert_batch({"x": np.zeros((1, 1 << 16), np.uint8)}, {"table": 1.0})
    client.sample_batch("table", 1)
    with pytest.raises(reverb.errors.ReverbError):
        client.mutate_priorities("no such table", updates={1: 1.0})
    metrics = Metrics(server)
    assert metrics("reverb_connections", transport="tcp") >= 1
    assert metrics("reverb_connections", transport="unix") == 0
    assert metrics("reverb_connections_accepted_total", transport="tcp") >= 1
    assert metrics("reverb_network_receive_bytes_total", transport="tcp") > 1 << 16
    assert metrics("reverb_network_transmit_bytes_total", transport="tcp") > 0
    assert metrics("reverb_streams", kind="insert") == 1
    ended = metrics.named("grpc_server_handled_total")
    assert all(dict(labels)["grpc_service"] == "reverb.replay.v1.Replay" for labels in ended)
    assert any(dict(labels)["grpc_code"] == "NotFound" and count == 1 for labels, count in ended.items())
    assert any(dict(labels)["grpc_code"] == "OK" for labels in ended)


@pytest.mark.parametrize("way", ["argument", "variable"])
def test_metrics_of_all_tables_can_be_summed(start, monkeypatch, way):
    options = {"metrics_per_table": False} if way == "argument" else {}
    if way == "variable":
        monkeypatch.setenv("REVERB_METRICS_PER_TABLE", "off")
    tables = [support.make_table("a", max_bytes=1 << 20), support.make_table("b", max_bytes=1 << 21)]
    server, client = start(*tables, **options)
    for name, count in (("a", 3), ("b", 5)):
        support.insert_values(client, range(count), name)
        support.draw(client, 2, name)
    metrics = Metrics(server)
    assert {dict(labels).get("table") for _, labels in metrics.values} == {None, "all"}
    assert metrics("reverb_table_items", table="all") == metrics("reverb_table_inserts_total", table="all") == 8
    assert metrics("reverb_table_sample_age_seconds_count", table="all") == 4
    assert metrics("reverb_table_max_bytes", table="all") == 3 << 20
    assert "reverb_table_limiter_diff" not in {name for name, _ in metrics.values}


def test_an_unknown_switch_is_refused(monkeypatch):
    monkeypatch.setenv("REVERB_METRICS_PER_TABLE", "no")
    with pytest.raises(ValueError, match="REVERB_METRICS_PER_TABLE must be on or off, got 'no'"):
        reverb.Server([support.make_table()])


def test_tables_beyond_a_thousand_share_a_label(start):
    names = ["other", *(f"t{number}" for number in range(1003))]
    server, client = start(*map(support.make_table, names))
    for name in ("other", "t0", "t999", "t1000", "t1002"):
        support.insert_values(client, [1, 2, 3], name)
    items = {dict(labels)["table"]: value for labels, value in Metrics(server).named("reverb_table_items").items()}
    assert len(items) == 1001
    assert items["t0"] == items["t999"] == 3
    # The table of that name, and the tables 1000 and 1002.
    assert items["other"] == 9
    assert "t1000" not in items


def test_a_scrape_of_a_busy_table_agrees_with_itself(start):
    server, client = start(support.make_table(max_size=50, max_times_sampled=3))
    support.insert_values(client, range(50))
    done = threading.Event()

    def write():
        while not done.is_set():
            client.insert_batch({"x": np.zeros((8, 4), np.float32)}, {"table": 1.0})

    def read():
        while not done.is_set():
            list(client.sample("table", num_samples=8))

    reader, *writers = (support.Background(work) for work in (read, write, write))
    try:
        before = 0
        for _ in range(30):
            metrics = Metrics(server)
            inserted = metrics("reverb_table_inserts_total", table="table")
            removed = sum(metrics("reverb_table_removals_total", table="table", reason=reason) for reason in REASONS)
            assert removed == inserted - metrics("reverb_table_items", table="table")
            assert inserted >= before
            before = inserted
    finally:
        done.set()
        for writer in writers:
            writer.result()
        # The last draw may have emptied the table.
        support.insert_values(client, range(50))
        reader.result()
