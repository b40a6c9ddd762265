"""A real Prometheus that scrapes the servers of a test."""

import contextlib
import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

PATIENCE_S = 120


class Prometheus:
    """A running Prometheus.

    Args:
      port: Port of its HTTP interface.
      is_running: Function that fails, with its log, once it has ended.
    """

    def __init__(self, port, is_running):
        self._url = f"http://127.0.0.1:{port}/api/v1"
        self._is_running = is_running

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

    def value(self, expression):
        """Returns the only value of an expression; None if there is none, or no answer yet."""
        try:
            found = self.series(expression)
        except (OSError, AssertionError):
            return None
        return float(found[0]["value"][1]) if found else None

    def wait_for(self, expression, is_reached):
        """Waits until the value of an expression is as wanted."""
        end = time.monotonic() + PATIENCE_S
        while (value := self.value(expression)) is None or not is_reached(value):
            self._is_running()
            assert time.monotonic() < end, f"{expression} is {value}; {self.ask('targets')}"
            time.sleep(1)


@contextlib.contextmanager
def running(folder, rules, targets, token="none"):
    """A Prometheus that scrapes addresses each second, as the job `reverb`, and evaluates rules as often. It shows the
    token to all of them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [
            {
                "job_name": "reverb",
                "authorization": {"credentials": token},
                "static_configs": [{"targets": targets}],
            }
        ],
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

        def is_running():
            log.seek(0)
            assert process.poll() is None, log.read()

        try:
            yield Prometheus(port, is_running)
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
