"""Checks what is in the files of a release: `python packaging/wheel_checks.py dist/wheels/*`.

A wheel has one extension for all CPythons, which needs no newer glibc than its name says and no library that a system
may lack; the licences of what is in it and its bill of materials; and less than 10 MB. The extension is read with
`readelf`, which is in Debian's binutils.
"""

import argparse
import email
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import wheel_platforms
from wheel_platforms import ROOT

MAX_BYTES = 10_000_000
GLIBC = (2, 17)
# Each Linux has these: PEP 599 names them, and musl is one library.
LIBRARIES = re.compile(r"(libc|libm|libdl|librt|libpthread|libgcc_s|ld-linux-.*)\.so(\.\d+)?")
LICENCES = ("LICENSE", "NOTICE", "THIRD-PARTY-LICENSES.txt")
SBOM = "reverb-replay.cdx.json"


def readelf(path):
    """What a shared library needs, in the words of `readelf`."""
    command = ["readelf", "--wide", "--dynamic", "--version-info", str(path)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def elf_problems(text, tag):
    """What an extension of Linux needs and may not.

    Args:
      text: What `readelf` says of it.
      tag: The platform in the name of the wheel. Only those of manylinux and musllinux promise something of glibc.
    """
    libraries = re.findall(r"\(NEEDED\).*\[(.+)\]", text)
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"Name: GLIBC_([\d.]+)", text)}
    if tag.startswith("musllinux") and versions:
        yield "needs glibc"
    if tag.startswith("manylinux"):
        if not versions:
            yield "needs no glibc: is it of manylinux?"
        yield from (f"needs GLIBC_{'.'.join(map(str, one))}" for one in sorted(versions) if one > GLIBC)
    yield from (f"needs {one}, which systems may lack" for one in libraries if not LIBRARIES.fullmatch(one))


def metadata_problems(text, version):
    """What METADATA says that is not so."""
    metadata = email.message_from_string(text)
    if metadata["Version"] != version:
        yield f"METADATA has version {metadata['Version']}, Cargo.toml {version}"
    if metadata["Requires-Python"] != f">=3.{wheel_platforms.OLDEST_MINOR}":
        yield f"METADATA requires Python {metadata['Requires-Python']}"
    yield from (f"METADATA lacks the licence {one}" for one in LICENCES if one not in metadata.get_all("License-File"))


def wheel_problems(path):
    """Everything that is wrong with a wheel, as texts."""
    version = wheel_platforms.version()
    matched = re.fullmatch(rf"{wheel_platforms.DISTRIBUTION}-([^-]+)-cp310-abi3-([^-]+)\.whl", path.name)
    if not matched:
        return ["its name is not that of a wheel of ours for every CPython from 3.10 up"]
    problems = []
    if path.stat().st_size >= MAX_BYTES:
        problems.append(f"has {path.stat().st_size / 1e6:.1f} MB, not less than {MAX_BYTES / 1e6:.0f} MB")
    with zipfile.ZipFile(path) as wheel, tempfile.TemporaryDirectory() as folder:
        names = wheel.namelist()
        info = f"{wheel_platforms.DISTRIBUTION}-{matched[1]}.dist-info"
        wanted = {f"{info}/licenses/{one}": ROOT / one for one in LICENCES}
        wanted[f"{info}/sboms/{SBOM}"] = ROOT / "packaging" / SBOM
        for name, ours in wanted.items():
            if name not in names:
                problems.append(f"lacks {name}")
            elif wheel.read(name) != ours.read_bytes():
                problems.append(f"has another {name} than {ours.relative_to(ROOT)}")
        problems += metadata_problems(wheel.read(f"{info}/METADATA").decode(), version)
        extensions = [name for name in names if re.search(r"\.(so|pyd|dylib)(\.|$)", name)]
        if extensions != ["reverb/_rust.abi3.so"]:
            problems.append(f"has these extensions, and not the one: {extensions}")
        elif "linux" in matched[2]:
            problems += elf_problems(readelf(wheel.extract(extensions[0], folder)), matched[2])
    return problems


def locked(root):
    """The crates of a lock file, with their versions."""
    text = (root / "Cargo.lock").read_text()
    return set(re.findall(r'^\[\[package\]\]\nname = "(.+)"\nversion = "(.+)"$', text, re.MULTILINE))


def sdist_problems(path):
    """Everything that keeps the sources from being built where there is no git, short of building them."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(path) as sources:
        sources.extractall(folder, filter="data")
        root = pathlib.Path(folder) / path.name.removesuffix(".tar.gz")
        messages = sorted(str(one.relative_to(ROOT)) for one in (ROOT / "proto").rglob("*.proto"))
        wanted = (*LICENCES, f"packaging/{SBOM}", "Cargo.lock", "README.md", *messages)
        problems = [f"lacks {one}" for one in wanted if not (root / one).is_file()]
        # It lacks the benchmarks, so cargo removes what they alone need from its lock file, and must change no version.
        known = ["cargo", "metadata", "--format-version=1", "--quiet"]
        ran = subprocess.run(known, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if ran.returncode:
            problems.append(f"cargo does not understand it: {ran.stderr.strip()}")
        elif not locked(root) <= locked(ROOT):
            problems.append("would be built of other crates than the wheels")
        problems += metadata_problems((root / "PKG-INFO").read_text(), wheel_platforms.version())
    return problems


def main():
    """Checks the files that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    problems = []
    for path in parser.parse_args().files:
        found = sdist_problems(path) if path.name.endswith(".tar.gz") else wheel_problems(path)
        problems += [f"{path.name} {one}" for one in found]
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB, {'bad' if found else 'good'}")
    sys.exit("\n".join(problems) or None)


if __name__ == "__main__":
    main()
