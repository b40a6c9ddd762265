"""Metrics in a real Prometheus: it takes them all, and the dashboard and the alerts find their series."""

import json
import pathlib
import re
import subprocess
import threading
import urllib.request

import numpy as np
import prometheus_support
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import reverb
from reverb import rate_limiters, selectors

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

PACKAGING = pathlib.Path(__file__).parents[2] / "packaging"
RULES = PACKAGING / "prometheus/alerts.yml"
OPEN_METRICS = "application/openmetrics-text"
HOSTILE = 'a"b\\c\nd'
TABLES = {"replay", HOSTILE, "starved", "queue"}
SCRAPES = 30
PATIENCE_S = 120


def table(name, limiter=None, **options):
    return reverb.Table(
        name=name,
        sampler=selectors.Uniform(),
        remover=selectors.Fifo(),
        max_size=200,
        rate_limiter=limiter or rate_limiters.MinSize(1),
        **options,
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server under load, one of whose tables blocks a reader."""
    ratio = rate_limiters.SampleToInsertRatio(samples_per_insert=1.0, min_size_to_sample=1, error_buffer=50.0)
    server = reverb.Server(
        [table("replay", ratio, max_bytes=1 << 30), table(HOSTILE), table("starved"), reverb.Table.queue("queue", 10)],
        checkpointer=reverb.checkpointers.DefaultCheckpointer(str(tmp_path_factory.mktemp("checkpoints"))),
    )
    client = reverb.Client(f"ipv4:127.0.0.1:{server.port}")
    for name in ("replay", HOSTILE):
        client.insert(np.zeros(4, np.float32), {name: 1.0})
    client.checkpoint()
    with pytest.raises(reverb.errors.ReverbError):
        client.mutate_priorities("no such table", updates={1: 1.0})
    done = threading.Event()

    def work():
        while not done.is_set():
            client.insert_batch({"x": np.zeros((8, 4), np.float32)}, {"replay": 1.0, HOSTILE: 1.0})
            for name in ("replay", HOSTILE):
                keys = [sample.info.key for sample in client.sample(name, num_samples=8, emit_timesteps=False)]
            client.mutate_priorities(HOSTILE, updates={keys[0]: 2.0})
            client.insert(np.zeros(4, np.float32), {"queue": 1.0})
            done.wait(0.05)

    def take():
        # Waits for each item.
        while not done.is_set():
            list(client.sample("queue", num_samples=1))

    def starve():
        list(client.sample("starved", num_samples=1))

    threads = [threading.Thread(target=target, daemon=True) for target in (work, take, starve)]
    for thread in threads:
        thread.start()
    yield server
    done.set()
    client.insert(np.zeros(4, np.float32), {"starved": 1.0, "queue": 1.0})
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    server.stop()


def metrics(server, accept):
    request = urllib.request.Request(f"{server.dashboard_url}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read().decode()


def test_the_parser_of_the_python_client_takes_the_text(server):
    families = {family.name: family for family in text_string_to_metric_families(metrics(server, OPEN_METRICS))}
    assert families["reverb_table_inserts"].type == "counter"
    assert families["reverb_build"].type == "info"
    items = {sample.labels["table"]: sample.value for sample in families["reverb_table_items"].samples}
    assert items.keys() == TABLES


def test_promtool_has_no_complaint(server):
    # As curl asks.
    text = metrics(server, "*/*")
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_promtool_accepts_the_rules_and_the_example():
    for command in (["rules", RULES], ["config", PACKAGING / "prometheus/prometheus.yml"]):
        done = subprocess.run(["promtool", "check", *map(str, command)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def prometheus(server, tmp_path_factory):
    """A Prometheus that has scraped the server for half a minute."""
    targets = [f"127.0.0.1:{server.http_port}"]
    with prometheus_support.running(tmp_path_factory.mktemp("prometheus"), RULES, targets) as prometheus:
        prometheus.wait_for("sum(sum_over_time(up[5m]))", lambda scrapes: scrapes >= SCRAPES)
        yield prometheus


DASHBOARD = json.loads((PACKAGING / "grafana/reverb.json").read_text())
EXPRESSIONS = [
    pytest.param(target["expr"], id=f"{panel['title']}-{target['refId']}")
    for panel in DASHBOARD["panels"]
    if panel["type"] != "row"
    for target in panel["targets"]
]


def substituted(expression):
    for variable, value in (("$__rate_interval", "20s"), ("$instance", ".*"), ("$table", ".*")):
        expression = expression.replace(variable, value)
    assert "$" not in expression
    return expression


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_panel_finds_its_series(prometheus, expression):
    found = prometheus.series(substituted(expression))
    # Quotients of counters that stand still are not numbers, but some must be.
    assert any(one["value"][1] != "NaN" for one in found)


def test_prometheus_has_taken_each_metric(prometheus, server):
    families = text_string_to_metric_families(metrics(server, OPEN_METRICS))
    names = {sample.name for family in families for sample in family.samples}
    known = {name for name in prometheus.ask("label/__name__/values") if re.match("reverb_|process_|grpc_", name)}
    assert known == names


def test_names_of_tables_arrive_as_they_are(prometheus):
    assert set(prometheus.ask("label/table/values")) == TABLES


def test_variables_of_the_dashboard_name_metrics(prometheus):
    queries = [one["query"]["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
    assert len(queries) == 2
    for query in queries:
        selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()
        assert all(label in one["metric"] for one in prometheus.series(substituted(selector)))


def made(name, values, **labels):
    text = ", ".join(f'{label}="{value}"' for label, value in {"job": "reverb", **labels}.items())
    return {"series": f"{name}{{{text}}}", "values": values}


def due(time_of, name, severity, *expected):
    alerts = [{"exp_labels": {"severity": severity, "job": "reverb", **labels}} for labels in expected]
    return {"eval_time": time_of, "alertname": name, "exp_alerts": alerts}


A, B, C = ({"instance": instance} for instance in "abc")
STARVED = {"table": "starved", **A}
# The thresholds of the rules, as `promtool test rules` sees them. test_alerts.py has servers.
MADE_SERIES = {
    "rule_files": ["alerts.yml"],
    "evaluation_interval": "1m",
    "tests": [
        {
            "interval": "1m",
            "input_series": [
                made("up", "1x10 0x100", **A),
                made("reverb_table_stalled", "0x5 1x394", **STARVED),
                made("reverb_table_stalled", "0x400", **A, table="idle"),
                made("process_resident_memory_bytes", "95x30", **A),
                made("process_resident_memory_bytes", "80x30", **B),
                made("reverb_memory_limit_bytes", "100x30", **A),
                made("reverb_memory_limit_bytes", "100x30", **B),
                made("reverb_table_last_insert_timestamp_seconds", "0x200", **A),
                # All save every ten minutes: the first never, the second once, and the third as it should. The fourth
                # saves when it is asked to.
                *(made("reverb_checkpoint_interval_seconds", "600x400", **labels) for labels in (A, B, C)),
                *(made("process_start_time_seconds", "1x400", instance=instance) for instance in "abcd"),
                made("reverb_checkpoints_total", "0x400", **A, result="ok"),
                made("reverb_checkpoints_total", "0x10 1x390", **B, result="ok"),
                made("reverb_checkpoints_total", "0+0.1x400", **C, result="ok"),
                made("reverb_checkpoints_total", "0x400", instance="d", result="ok"),
                made("reverb_checkpoint_last_success_timestamp_seconds", "0x400", **A),
                made("reverb_checkpoint_last_success_timestamp_seconds", "0x10 600x390", **B),
                made("reverb_checkpoint_last_success_timestamp_seconds", "0+60x400", **C),
                made("reverb_checkpoint_last_success_timestamp_seconds", "0x400", instance="d"),
                made("reverb_checkpoint_last_failed", "0x20 1x10 0x100", **A),
                # The log of A is closed, B syncs it every ten seconds, and C's disk hangs, with and without room.
                made("reverb_log_failed", "0x20 1x10 0x100", **A),
                made("reverb_log_sync_interval_seconds", "10x100", **B),
                made("reverb_log_sync_age_seconds", "0x10 99x4 101x100", **B),
                made("reverb_log_sync_interval_seconds", "1x100", **C),
                made("reverb_log_sync_age_seconds", "0x10 10x4 11x100", **C),
                made("reverb_log_disk_low", "0x10 1x100", **C),
                # A client tries again twice a minute, with two mistakes; one trusts no certificate; one was wrong once.
                made("reverb_auth_failures_total", "0+1x100", **A, reason="no_token"),
                made("reverb_auth_failures_total", "0+1x100", **A, reason="role"),
                made("reverb_handshake_failures_total", "0x100", **A),
                made("reverb_auth_failures_total", "0x100", **B, reason="role"),
                made("reverb_handshake_failures_total", "0+2x100", **B),
                made("reverb_auth_failures_total", "0x5 100x100", **C, reason="role"),
                made("reverb_handshake_failures_total", "0x100", **C),
            ],
            "alert_rule_test": [
                due("11m", "ReverbDown", "critical"),
                due("13m", "ReverbDown", "critical", A),
                due("6m", "ReverbBlocked", "warning"),
                due("8m", "ReverbBlocked", "warning", STARVED),
                due("14m", "ReverbNoInserts", "warning"),
                due("16m", "ReverbNoInserts", "warning", A),
                due("20m", "ReverbSaveFailed", "critical"),
                due("21m", "ReverbSaveFailed", "critical", A),
                due("33m", "ReverbSaveFailed", "critical"),
                due("29m", "ReverbNeverSaved", "critical"),
                due("32m", "ReverbNeverSaved", "critical", A),
                due("39m", "ReverbCheckpointOld", "critical"),
                due("42m", "ReverbCheckpointOld", "critical", B),
                due("20m", "ReverbLogClosed", "critical"),
                due("21m", "ReverbLogClosed", "critical", A),
                due("33m", "ReverbLogClosed", "critical"),
                due("14m", "ReverbLogLate", "warning"),
                due("17m", "ReverbLogLate", "warning", B, C),
                due("9m", "ReverbLogDiskLow", "warning"),
                due("12m", "ReverbLogDiskLow", "warning", C),
                due("10m", "ReverbMemoryNearLimit", "critical", A),
                due("9m", "ReverbAuthFailures", "warning"),
                due("13m", "ReverbAuthFailures", "warning", A, B),
                due("20m", "ReverbAuthFailures", "warning", A, B),
            ],
        }
    ],
}


def test_alerts_are_due_beyond_their_thresholds(tmp_path):
    # What an annotation says is for people: only labels are compared.
    bare = re.sub(r"\n        annotations:(\n {10,}.*)+", "", RULES.read_text())
    assert bare.count("- alert:") == RULES.read_text().count("- alert:")
    (tmp_path / "alerts.yml").write_text(bare)
    (tmp_path / "test.yml").write_text(json.dumps(MADE_SERIES))
    command = ["promtool", "test", "rules", str(tmp_path / "test.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
