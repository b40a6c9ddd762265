"""Metrics in a real Prometheus: it takes them all, and the dashboard and the alerts find their series."""

import json
import pathlib
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import reverb
from reverb import rate_limiters, selectors

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

PACKAGING = pathlib.Path(__file__).parents[2] / "packaging"
RULES = PACKAGING / "prometheus/alerts.yml"
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
    families = {family.name: family for family in text_string_to_metric_families(metrics(server, "*/*"))}
    assert families["reverb_table_inserts"].type == "counter"
    assert families["reverb_build"].type == "info"
    items = {sample.labels["table"]: sample.value for sample in families["reverb_table_items"].samples}
    assert items.keys() == TABLES


def test_promtool_has_no_complaint(server):
    text = metrics(server, "text/plain")
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_promtool_accepts_the_rules_and_the_example():
    for command in (["rules", RULES], ["config", PACKAGING / "prometheus/prometheus.yml"]):
        done = subprocess.run(["promtool", "check", *map(str, command)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


class Prometheus:
    """A running Prometheus.

    Args:
      port: Port of its HTTP interface.
    """

    def __init__(self, port):
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, path, **arguments):
        """Returns the data of an answer. Fails with Prometheus' own words."""
        url = f"{self._url}/{path}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{arguments}: {error.read().decode()}") from error

    def series(self, expression):
        """Returns the series that an expression finds now."""
        return self.ask("query", query=expression)["result"]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def prometheus(server, tmp_path_factory):
    """A Prometheus that has scraped the server for half a minute."""
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "reverb", "static_configs": [{"targets": [f"127.0.0.1:{server.http_port}"]}]}],
    }
    # JSON is YAML.
    (folder / "prometheus.yml").write_text(json.dumps(config))
    with open(folder / "log", "w+") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
        prometheus = Prometheus(port)
        try:
            end = time.monotonic() + PATIENCE_S
            while not has_scraped(prometheus):
                log.seek(0)
                assert process.poll() is None, log.read()
                assert time.monotonic() < end, f"too few scrapes; {prometheus.ask('targets')}"
                time.sleep(1)
            yield prometheus
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def has_scraped(prometheus):
    try:
        found = prometheus.series("sum(sum_over_time(up[5m]))")
    except (OSError, AssertionError):
        return False
    return bool(found) and float(found[0]["value"][1]) >= SCRAPES


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
    families = text_string_to_metric_families(metrics(server, "*/*"))
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


def alerts(prometheus):
    return [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]


def test_alerts_find_their_series(prometheus):
    rules = alerts(prometheus)
    assert {rule["name"] for rule in rules} >= {"ReverbBlocked", "ReverbNoInserts", "ReverbCheckpointOld"}
    for rule in rules:
        assert rule["health"] == "ok", rule
        # The threshold is the end of the text, and hides what is below it.
        without_threshold = re.sub(r" > [\d.]+$", "", rule["query"])
        assert without_threshold != rule["query"]
        assert prometheus.series(without_threshold), rule["name"]


# Series of five minutes and more, which this test does not wait for: from `promtool test rules`.
MADE_SERIES = {
    "rule_files": ["alerts.yml"],
    "evaluation_interval": "1m",
    "tests": [
        {
            "interval": "1m",
            "input_series": [
                {
                    "series": "reverb_table_blocked_seconds_total"
                    f'{{table="{table}", operation="sample", instance="a"}}',
                    "values": values,
                }
                # One is always blocked, and the other half of the time.
                for table, values in (("starved", "0+60x30"), ("replay", "0+30x30"))
            ]
            + [
                {"series": f'{name}{{instance="{instance}"}}', "values": values}
                for name, instance, values in (
                    ("process_resident_memory_bytes", "a", "95x30"),
                    ("process_resident_memory_bytes", "b", "80x30"),
                    ("reverb_memory_limit_bytes", "a", "100x30"),
                    ("reverb_memory_limit_bytes", "b", "100x30"),
                    ("reverb_checkpoint_last_success_timestamp_seconds", "a", "0x200"),
                    ("reverb_table_last_insert_timestamp_seconds", "a", "0x200"),
                )
            ],
            "alert_rule_test": [
                {
                    "eval_time": time_of,
                    "alertname": name,
                    "exp_alerts": [{"exp_labels": {"severity": severity, **labels}} for labels in expected],
                }
                for time_of, name, severity, expected in (
                    ("4m", "ReverbBlocked", "warning", []),
                    ("12m", "ReverbBlocked", "warning", [{"table": "starved", "operation": "sample", "instance": "a"}]),
                    ("14m", "ReverbNoInserts", "warning", []),
                    ("16m", "ReverbNoInserts", "warning", [{"instance": "a"}]),
                    ("10m", "ReverbMemoryNearLimit", "critical", [{"instance": "a"}]),
                    ("119m", "ReverbCheckpointOld", "critical", []),
                    ("121m", "ReverbCheckpointOld", "critical", [{"instance": "a"}]),
                )
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
