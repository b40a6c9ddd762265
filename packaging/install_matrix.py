"""Writes what the records say into `docs/install-matrix.md` and the classifiers of `pyproject.toml`.

`make wheels` runs it after the proofs. A test compares them, so that neither says more than was seen.
"""

import re
import sys

import wheel_platforms

DOCUMENT = "docs/install-matrix.md"
_SYSTEMS = {"linux": "POSIX :: Linux", "musllinux": "POSIX :: Linux", "macos": "MacOS"}
_PYTHON = "Programming Language :: Python :: 3."
_SYSTEM = "Operating System :: "
_HEAD = """\
# Where it installs

Made by `make wheels`, from the records in `packaging/records/`: each has the hash of a file, and the Pythons that ran
it. The wheel of a platform serves every CPython from 3.10 up. Free-threaded CPython (3.13t, 3.14t) is not served: the
wheels use the stable ABI, which it lacks. There are no wheels for PyPy and Windows. On musl, pip builds dm-tree and
ml_dtypes from their sources, since they have no wheels for it.

| platform | wheel | run on CPython | by |
|---|---|---|---|
"""


def seen(record):
    """The last two cells of the row of a platform: the Pythons, and what ran there."""
    runs = record["runs"]
    if not runs:
        return "none", "built, and never run"
    programs = "the programs of README.md" + ("" if any(one["network"] for one in runs) else ", without a network")
    if emulated := runs[0]["emulated"]:
        programs += f", under {emulated} only"
    tests = [f"{one['passed']} of {' and '.join(record['tests'])} on {one['python']}" for one in runs if one["passed"]]
    return ", ".join(one["python"] for one in runs), "; ".join([programs, *tests])


def document(records):
    """The text of the matrix."""
    rows = []
    for one in wheel_platforms.PLATFORMS:
        if record := records.get(one.name):
            pythons, proof = seen(record)
            rows.append(f"| {one.words} | {record['bytes'] / 1e6:.1f} MB | {pythons} | {proof} ({record['date']}) |\n")
        else:
            rows.append(f"| {one.words} | never built | none | nothing |\n")
    return _HEAD + "".join(rows)


def classifiers(records):
    """The classifiers that the records allow: systems and versions of Python on which a wheel ran, not emulated."""
    runs = [(name, one["python"]) for name, record in records.items() for one in record["runs"] if not one["emulated"]]
    minors = sorted({int(python.split(".")[1]) for _, python in runs})
    systems = {_SYSTEMS[name.split("-")[0]] for name, _ in runs if name != "sdist"}
    return [_SYSTEM + one for one in sorted(systems)], [f"{_PYTHON}{minor}" for minor in minors]


def classified(text, records):
    """The text of `pyproject.toml` with the classifiers that the records allow."""
    systems, pythons = classifiers(records)
    kept = re.sub(rf'^  "({re.escape(_SYSTEM)}|{re.escape(_PYTHON)}\d).*\n', "", text, flags=re.MULTILINE)
    for anchor, names in (("Tests have run on no other system", systems), ("Python :: 3 :: Only", pythons)):
        [line] = re.findall(rf".*{re.escape(anchor)}.*\n", kept)
        kept = kept.replace(line, line + "".join(f'  "{name}",\n' for name in names))
    return kept


def main():
    """Writes both files, and says if the wheels have to be built again."""
    records = wheel_platforms.records()
    (wheel_platforms.ROOT / DOCUMENT).write_text(document(records))
    project = wheel_platforms.ROOT / "pyproject.toml"
    before = project.read_text()
    project.write_text(classified(before, records))
    if project.read_text() != before:
        sys.exit("The classifiers have changed, which are in the wheels, too: run `make wheels` again")


if __name__ == "__main__":
    main()
