"""Counts instructions per call under callgrind, before and after a change, and prints their ratio for each row.

Rows are those of the area `survey`, all in one process, and one iteration of each criterion benchmark.
Counts hardly depend on what else the machine does; on the other hand they say nothing of memory and of waiting.

    python benchmarks/instructions.py --survey OLD/bin/python NEW/bin/python --benches OLD_FOLDER NEW_FOLDER

The folders have the executables that `cargo bench --no-run -p reverb-criterion` names, as `gather` and `table`. Needs
Linux on x86-64 or AArch64, valgrind with its headers, and a C compiler.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
BENCHES = ("gather", "table")
# What a benchmark calls after it has made its table: `iter`, or `iter_batched`, which makes the inputs as well.
ITERATE = "criterion::bencher::Bencher<*>::iter*"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--survey", nargs=2, metavar=("BEFORE", "AFTER"), help="interpreters that have the package")
    parser.add_argument("--benches", nargs=2, metavar=("BEFORE", "AFTER"), help="folders of executables")
    parser.add_argument("--calls", type=int, default=300, help="calls of a row of the survey that are counted")
    parser.add_argument("--limit", type=float, default=1.03, help="the highest ratio that is accepted")
    parser.add_argument("--json", type=pathlib.Path, help="a file for the counts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counter = build_counter(pathlib.Path(folder))
        sides = [count_side(counter, options, number) for number in (0, 1)]
    if options.json:
        options.json.write_text(json.dumps(dict(zip(("before", "after"), sides, strict=True)), indent=1) + "\n")
    sys.exit(report(*sides, options.limit))


def build_counter(folder):
    """The library that is preloaded."""
    library = folder / "counter.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, HERE / "instructions.c"], check=True)
    return library


def count_side(counter, options, number):
    """Instructions of a call by row."""
    counts = {}
    if options.survey:
        counts |= count_survey(counter, options.survey[number], options.calls)
    if options.benches:
        for bench in BENCHES:
            counts |= count_bench(counter, pathlib.Path(options.benches[number]) / bench)
    return counts


def count_survey(counter, python, calls):
    command = [python, HERE / "instructions_worker.py", str(calls)]
    dumps, _ = callgrind(counter, command, ["--instr-atstart=no"])
    named = ((re.search(r"Client Request: (.*)", dump), total_of(dump)) for dump in dumps)
    return {found[1]: total / calls for found, total in named if found}


def count_bench(counter, executable):
    """One iteration of each benchmark, which criterion runs as a test; the preloaded library asks for the dumps."""
    options = ["--collect-atstart=no", f"--toggle-collect={ITERATE}"]
    dumps, output = callgrind(counter, [executable, "--bench", "--test"], options)
    names = re.findall(r"^Testing (\S+)", output, re.MULTILINE)
    totals = [total for total in map(total_of, dumps) if total]
    if len(names) != len(totals):
        raise RuntimeError(f"{executable.name}: {len(names)} benchmarks, but {len(totals)} counts")
    return dict(zip(names, totals, strict=True))


def callgrind(counter, command, options):
    """Runs a command; the dumps in order, and what it printed."""
    environment = {**os.environ, "LD_PRELOAD": str(counter), "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "out")
        valgrind = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={out}", *options]
        done = subprocess.run([*valgrind, *command], env=environment, cwd=HERE, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed:\n{done.stdout}\n{done.stderr}")
        files = sorted(pathlib.Path(folder).glob("out.*"), key=lambda path: int(path.suffix[1:]))
        return [path.read_text() for path in files], done.stdout + done.stderr


def total_of(dump):
    found = re.search(r"^(?:totals|summary): (\d+)", dump, re.MULTILINE)
    return int(found[1]) if found else 0


def report(before, after, limit):
    """Prints a line for each row; 1 if a row grew beyond the limit or is missing on one side."""
    print(f"{'row':<44} {'before':>12} {'after':>12} {'ratio':>7}")
    too_many = sorted(before.keys() ^ after.keys())
    for row in before.keys() & after.keys():
        if after[row] > limit * before[row]:
            too_many.append(row)
    for row in [row for row in before if row in after]:
        ratio = after[row] / before[row]
        print(f"{row:<44} {before[row]:>12.0f} {after[row]:>12.0f} {ratio:>7.4f}{' <--' if row in too_many else ''}")
    print(f"beyond {limit}, or on one side only: {', '.join(too_many) or 'none'}")
    return bool(too_many)


if __name__ == "__main__":
    main()
