"""Proves a file of a release where it is for, and writes what was seen: `packaging/records/PLATFORM.json`.

`python packaging/wheel_proof.py dist/wheels` does for each file there:

- a wheel for this machine is installed in fresh environments of every CPython at hand, from a folder of wheels and
  without a network where that is allowed; the Python programs of `README.md` run there, the one for a remote server
  against a server in another process, over TCP. With `--tests` the tests of these paths run in one of them, too;
- the sources are unpacked where there is no git, built in the development profile, and the wheel goes the same way;
- a wheel for Linux aarch64 does so under `qemu-user`, in Debian's Python for it, if both can be had: see `emulated.py`;
- any other wheel is recorded as built, and never run.
"""

import argparse
import contextlib
import ctypes
import datetime
import fcntl
import json
import os
import pathlib
import platform
import re
import shutil
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree

import emulated
import wheel_platforms

# What a Python tells of itself: whether a wheel of abi3 can serve it, and its version.
_FACTS = """\
import platform, sys, sysconfig
is_served = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
print(is_served and sys.version_info >= (3, {oldest}), platform.python_version())
"""
_SERVER = """\
import sys
import numpy as np
import reverb

server = reverb.Server([reverb.Table(
    "replay", max_size=1000, rate_limiter=reverb.rate_limiters.MinSize(1),
    sampler=reverb.selectors.Uniform(), remover=reverb.selectors.Fifo(),
    signature={"observation": reverb.TensorSpec((4,), np.float32)})])
print(server.port, flush=True)
sys.stdin.read()
"""
_REMOTE = "localhost:8000"
_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP_AND_RUNNING = 0x1 | 0x40


def run(command, **more):
    """Runs a command and returns what it prints; shows that if the command fails."""
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if ran.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{ran.stdout}\nended with {ran.returncode}")
    return ran.stdout


def pythons():
    """Every CPython at hand that the wheel is for, by its version, with the oldest first."""
    names = [f"python3.{minor}" for minor in range(wheel_platforms.OLDEST_MINOR, 30)]
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"), "versions")
    found = {}
    for command in [sys.executable, *filter(None, map(shutil.which, names)), *pyenv.glob("*/bin/python3")]:
        facts = _FACTS.format(oldest=wheel_platforms.OLDEST_MINOR)
        ran = subprocess.run([command, "-c", facts], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if ran.returncode == 0 and ran.stdout.startswith("True"):
            found.setdefault(ran.stdout.split()[1], str(command))
    return dict(sorted(found.items(), key=lambda one: [int(part) for part in re.findall(r"\d+", one[0])]))


def programs():
    """The Python programs of the README: that with a server of its own, and that for a remote one."""
    blocks = re.findall(r"```python\n(.*?)```", (wheel_platforms.ROOT / "README.md").read_text(), re.DOTALL)
    [remote] = [block for block in blocks if _REMOTE in block]
    return [block for block in blocks if block is not remote], remote


def cut():
    """A command that runs another without a network but its own loopback, or None if this is not allowed."""
    command = [sys.executable, __file__, "--cut"]
    allowed = subprocess.run([*command, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return command if allowed.returncode == 0 else None


def run_cut(command):
    """Becomes a command in a network of its own, which has a loopback interface only. Needs root on Linux."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "no network of its own")
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP_AND_RUNNING))
    os.execvp(command[0], command)


@contextlib.contextmanager
def served(python, environment):
    """A server in another process, as an address. It keeps its Unix socket where clients do not look: so, TCP."""
    with tempfile.TemporaryDirectory() as folder:
        apart = environment | {"TMPDIR": folder, "XDG_RUNTIME_DIR": folder}
        with subprocess.Popen(
            [*python, "-c", _SERVER], env=apart, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server:
            yield f"127.0.0.1:{server.stdout.readline().strip()}"
            server.stdin.close()


def run_programs(python, environment):
    """Runs the README's programs.

    Args:
      python: The command that is Python, as a list.
      environment: The environment variables.
    """
    alone, remote = programs()
    for program in alone:
        print(run([*python, "-c", program], env=environment), end="")
    with served(python, environment) as address:
        print(run([*python, "-c", remote.replace(_REMOTE, address)], env=environment), end="")


def tests(python, wheel, paths, marks):
    """Runs tests in an environment with what they need: numbers of those that passed and failed."""
    run([python, "-m", "pip", "install", "--quiet", f"{wheel}[test,cli]"])
    # Each worker in a network of its own, as `make test` does it.
    environment = os.environ | {"REVERB_TEST_NETWORKS": "1" if cut() else ""}
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.xml")
        command = [python, "-m", "pytest", *paths, "-m", marks, f"--junitxml={report}", "-q", "--dist", "worksteal"]
        workers = str(2 * (os.cpu_count() or 1))
        subprocess.run([*command, "--numprocesses", workers], cwd=wheel_platforms.ROOT, env=environment)
        [suite] = ElementTree.parse(report).iter("testsuite")
        counts = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
    failed = counts["failures"] + counts["errors"]
    return counts["tests"] - failed - counts["skipped"], failed


def proved_on(command, version, wheel, options):
    """Installs a wheel in a fresh environment and runs it there.

    Args:
      command: The Python that the environment is made with.
      version: Its version.
      wheel: Path of the wheel.
      options: The command line; `tests_on` says where the tests run.
    """
    with tempfile.TemporaryDirectory() as folder:
        house, python = pathlib.Path(folder, "wheels"), pathlib.Path(folder, "venv/bin/python")
        run([command, "-m", "venv", folder + "/venv"])
        run([python, "-m", "pip", "wheel", "--quiet", "--wheel-dir", house, wheel])
        offline = cut()
        install = [python, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", house, wheel]
        run([*(offline or []), *install])
        inner = [*(offline or []), sys.executable, __file__, "--programs", python]
        print(run(inner, cwd=folder), end="")
        seen = {"python": version, "emulated": "", "network": offline is None}
        passed = failed = 0
        if version.startswith(tuple(f"{one}." for one in options.tests_on)) and options.tests:
            passed, failed = tests(python, wheel, options.tests, options.marks)
    return seen | {"passed": passed, "failed": failed}


def proved(wheel, options):
    """What was seen of a wheel for this machine, on each Python."""
    seen = []
    for version, command in pythons().items():
        print(f"--- {wheel.name} on CPython {version}", flush=True)
        seen.append(proved_on(command, version, wheel, options))
    return seen


def sdist_proved(sources, options):
    """What was seen of a wheel that is built of the sources, unpacked where there is no git."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sources) as archive:
            archive.extractall(folder, filter="data")
        root, target = pathlib.Path(folder, sources.name.removesuffix(".tar.gz")), wheel_platforms.ROOT / "target"
        # Cargo goes by times, and takes what it has built of other sources for that of older ones.
        for path in root.rglob("*"):
            os.utime(path)
        environment = os.environ | {"MATURIN_PEP517_ARGS": "--profile dev", "CARGO_TARGET_DIR": str(target)}
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, root]
        run(command, env=environment)
        [wheel] = pathlib.Path(folder).glob("*.whl")
        return proved(wheel, options)


def record(platform_, path, options):
    """Proves a file, as far as this machine can, and returns its record."""
    runs = []
    if platform_.name == "sdist":
        runs = sdist_proved(path, options)
    elif platform_.name == wheel_platforms.here():
        runs = proved(path, options)
    elif platform_.name == "linux-aarch64":
        runs = emulated.proved(path, lambda python, environment: run_programs(python, os.environ | environment))
    print(f"{platform_.name}: {'ran on ' + ', '.join(one['python'] for one in runs) if runs else 'built, never run'}")
    return {
        "file": path.name,
        "sha256": wheel_platforms.sha256(path),
        "bytes": path.stat().st_size,
        "sources": wheel_platforms.sources(),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "on": f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver()) or 'no glibc'}",
        "tests": options.tests,
        "runs": runs,
    }


def main():
    """Proves the files in a folder."""
    if sys.argv[1:2] == ["--cut"]:
        run_cut(sys.argv[2:])
    if sys.argv[1:2] == ["--programs"]:
        return run_programs(sys.argv[2:], dict(os.environ))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("platforms", nargs="*", metavar="PLATFORM", help="all that have a file in the folder")
    parser.add_argument("--records", type=pathlib.Path, default=wheel_platforms.RECORDS)
    parser.add_argument("--tests", nargs="*", default=[], metavar="PATH", help="run these tests, too")
    parser.add_argument("--tests-on", nargs="*", default=[], metavar="3.N", help="on these Pythons")
    parser.add_argument("--marks", default="", help="which of the tests")
    options = parser.parse_args()
    documents = {}
    for name in options.platforms or wheel_platforms.BY_NAME:
        path = options.folder.resolve() / wheel_platforms.BY_NAME[name].file(wheel_platforms.version())
        if path.is_file():
            documents[name] = record(wheel_platforms.BY_NAME[name], path, options)
        elif options.platforms:
            sys.exit(f"{path} is missing")
    # All of them at the end: tests compare the records with documents, which are written after this.
    options.records.mkdir(parents=True, exist_ok=True)
    for name, document in documents.items():
        (options.records / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
