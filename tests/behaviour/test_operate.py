"""docs/operate.md says what is there: each metric with its labels, each alert, and commands that run."""

import pathlib
import re
import shlex
import subprocess
import sys
import urllib.request

import behaviour_support as support
import metrics_support
import pytest

import reverb

ROOT = pathlib.Path(__file__).parents[2]
GUIDE = (ROOT / "docs/operate.md").read_text()
COMMAND = [sys.executable, "-c", "from reverb.cli import main; main()"]
ROW = re.compile(r"^\| `([a-z_]+)` \| (gauge|counter|histogram|info) \| ([a-z_, ]*) ?\| \S", re.MULTILINE)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server that shows all its metrics: with a limit in bytes, an interval, a checkpoint, a log, and ended calls."""
    checkpointer = reverb.checkpointers.DefaultCheckpointer(tmp_path_factory.mktemp("kept"), interval=3600.0)
    table = support.make_table("replay", max_bytes=1 << 30)
    server = reverb.Server([table], checkpointer=checkpointer, durability="process")
    client = reverb.Client(f"ipv4:127.0.0.1:{server.port}")
    support.insert_values(client, [1], "replay")
    support.draw(client, 1, "replay")
    client.checkpoint()
    yield server
    server.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the metrics of the process are absent")
def test_the_guide_lists_each_metric_with_its_type_and_labels(server):
    _, text = metrics_support.scrape(server, "text/plain")
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    labels = {}
    for name, found in metrics_support.samples(text):
        family = next(family for family in (name, re.sub(r"_(sum|count|bucket)$", "", name)) if family in types)
        labels.setdefault(family, set()).update(label for label, _ in found if label != "le")
    listed = {name: (kind, set(filter(None, by.replace(" ", "").split(",")))) for name, kind, by in ROW.findall(GUIDE)}
    # The plain text calls them gauges.
    assert {name for name, (kind, _) in listed.items() if kind == "info"} == {"reverb_build_info", "reverb_log_info"}
    listed = {name: ("gauge" if kind == "info" else kind, by) for name, (kind, by) in listed.items()}
    assert listed == {name: (kind, labels[name]) for name, kind in types.items()}


def test_the_guide_lists_each_alert():
    rules = re.findall(r"- alert: (\w+)", (ROOT / "packaging/prometheus/alerts.yml").read_text())
    assert re.findall(r"^\| `(Reverb\w+)` \|", GUIDE, re.MULTILINE) == rules


def commands():
    """The commands of the guide that this package answers, without those that install it or run on."""
    for block in re.findall(r"^```bash\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", "").splitlines():
            words = shlex.split(line, comments=True)
            if (
                words[0] in ("reverb", "curl")
                and "--stat" not in words
                and words[1] != "bench"
                and "replay.toml" not in words
            ):
                yield words


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_a_command_of_the_guide_runs(words, server):
    port = {"8000": server.port, "24800": server.http_port}
    words = [re.sub(r"\b(8000|24800)\b", lambda found: str(port[found[0]]), word) for word in words]
    if words[0] == "curl":
        urllib.request.urlopen(words[-1], timeout=30).close()
        return
    done = subprocess.run([*COMMAND, *words[1:]], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr


def test_the_file_of_the_guide_is_valid(tmp_path):
    text = re.search(r"^```toml\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)[1]
    assert "/var/lib/reverb" in text
    # Not everybody may make a folder there.
    (tmp_path / "replay.toml").write_text(text.replace("/var/lib/reverb", str(tmp_path)))
    words = [*COMMAND, "serve", str(tmp_path / "replay.toml"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not (ROOT / "docs/figures/page").exists(), reason="`make screenshots` has not made them")
def test_pictures_of_the_guide_exist():
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', GUIDE)
    assert pictures
    assert [name for name in pictures if not (ROOT / "docs" / name).exists()] == []
