"""The platforms that wheels are for, and what the records in `packaging/records/` say of the files for them."""

import dataclasses
import hashlib
import json
import pathlib
import platform
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
RECORDS = ROOT / "packaging/records"
DISTRIBUTION = "reverb_replay"
OLDEST_MINOR = 10
# What the files of a release are made of, and nothing else.
SOURCES = (
    *("Cargo.lock", "Cargo.toml", "LICENSE", "NOTICE", "README.md", "THIRD-PARTY-LICENSES.txt", "crates", "proto"),
    *("packaging/reverb-replay.cdx.json", "pyproject.toml", "python"),
)


@dataclasses.dataclass(frozen=True)
class Platform:
    """What one file of a release is for.

    Attributes:
      name: Its name in commands and records.
      words: Its name for people.
      target: Rust's name for it; empty for the sdist.
      compatibility: What maturin is told of the oldest system.
      tag: The platform in the name of the wheel.
    """

    name: str
    words: str
    target: str = ""
    compatibility: str = ""
    tag: str = ""

    def file(self, version):
        """The name of its file."""
        if not self.target:
            return f"{DISTRIBUTION}-{version}.tar.gz"
        return f"{DISTRIBUTION}-{version}-cp3{OLDEST_MINOR}-abi3-{self.tag}.whl"


PLATFORMS = (
    Platform(
        "linux-x86_64",
        "Linux x86-64, glibc 2.17 or newer",
        "x86_64-unknown-linux-gnu",
        "manylinux2014",
        "manylinux2014_x86_64.manylinux_2_17_x86_64",
    ),
    Platform(
        "linux-aarch64",
        "Linux aarch64, glibc 2.17 or newer",
        "aarch64-unknown-linux-gnu",
        "manylinux2014",
        "manylinux2014_aarch64.manylinux_2_17_aarch64",
    ),
    Platform(
        "musllinux-x86_64",
        "Linux x86-64, musl 1.2 or newer",
        "x86_64-unknown-linux-musl",
        "musllinux_1_2",
        "musllinux_1_2_x86_64",
    ),
    Platform("macos-arm64", "macOS 11 or newer, arm64", "aarch64-apple-darwin", "pypi", "macosx_11_0_arm64"),
    Platform("macos-x86_64", "macOS 10.12 or newer, x86-64", "x86_64-apple-darwin", "pypi", "macosx_10_12_x86_64"),
    Platform("sdist", "Sources; the build needs a C compiler and Rust 1.88 or newer"),
)
BY_NAME = {one.name: one for one in PLATFORMS}


def here():
    """The name of the platform of this interpreter, or None if there is no wheel for it."""
    machine = {"AMD64": "x86_64", "aarch64": "aarch64"}.get(platform.machine(), platform.machine())
    systems = {"linux": "linux" if platform.libc_ver()[0] == "glibc" else "musllinux", "darwin": "macos"}
    name = f"{systems.get(sys.platform, sys.platform)}-{machine}"
    return name if name in BY_NAME else None


def version():
    """The version, from the one place where it stands: the workspace in `Cargo.toml`."""
    text = (ROOT / "Cargo.toml").read_text()
    return re.search(r'^\[workspace\.package\]\nversion = "(.+)"$', text, re.MULTILINE)[1]


def sha256(path):
    """The hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sources(root=ROOT):
    """One hash of all that the files of a release are made of, as it lies in the working tree."""
    listed = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *SOURCES]
    names = subprocess.run(listed, check=True, stdout=subprocess.PIPE).stdout.decode().split("\0")
    paths = [(name, root / name) for name in sorted(set(names))]
    hashes = [f"{name} {sha256(path)}\n" for name, path in paths if name and path.is_file()]
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def records(folder=RECORDS):
    """The record of each platform that has one, by its name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def is_tested(record):
    """Whether tests ran on the platform itself, and none failed."""
    runs = record["runs"]
    return any(run["passed"] for run in runs) and not any(run["failed"] or run["emulated"] for run in runs)
