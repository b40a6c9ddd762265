"""Reads `/metrics` of a server in this process."""

import re
import urllib.request

OPEN_METRICS = "application/openmetrics-text"

SAMPLE = re.compile(r'(?P<name>[a-z_]+)(?:\{(?P<labels>(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (?P<value>\S+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"')
ESCAPES = {r"\"": '"', r"\\": "\\", r"\n": "\n"}


def scrape(server, accept=OPEN_METRICS):
    """Returns the media type and the text of a server's metrics."""
    request = urllib.request.Request(f"{server.dashboard_url}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.headers["Content-Type"], response.read().decode()


def samples(text):
    """Returns the values of a text by (name, frozen set of labels). Fails if a line has another form."""
    found = {}
    for line in text.splitlines():
        if line.startswith("# "):
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, f"not a sample: {line}"
        labels = LABEL.findall(sample["labels"] or "")
        key = sample["name"], frozenset((name, unescaped(value)) for name, value in labels)
        assert key not in found, f"a sample was written twice: {line}"
        found[key] = float(sample["value"])
    return found


def unescaped(text):
    return re.sub(r"\\.", lambda escape: ESCAPES[escape[0]], text)


class Metrics:
    """The metrics of a server at one moment.

    Args:
      server: A server of this process with an HTTP port.
    """

    def __init__(self, server):
        self.values = samples(scrape(server)[1])

    def __call__(self, name, **labels):
        """Returns the value of a sample."""
        return self.values[name, frozenset(labels.items())]

    def named(self, name):
        """Returns the values of all samples of a name by their labels."""
        return {labels: value for (other, labels), value in self.values.items() if other == name}
