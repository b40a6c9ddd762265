"""Writes the tables and plots of the records, or of given ones: `make bench-report`.

The tables of the project's README and at the top of `README.md` in this folder, and the plots, show one record: the
newest that has the areas they need. Below, each area is shown from the newest record that has it.

python benchmarks/report.py [--check] [benchmarks/results/<date>-<name>.json ...]
"""

import argparse
import json
import os
import pathlib
import sys

import plots
import summary
from summary import NAMES, short, table_of

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
FIGURES = ROOT / "docs/figures"
SHORT = "<!-- in short: written by `make bench-report` -->", "<!-- end of in short -->"
RESULTS = "<!-- results: written by `make bench-report` -->", "<!-- end of results -->"
ROADS = {"same_process": "same process", "unix": "Unix socket", "tcp": "TCP"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=pathlib.Path, nargs="*", help="all but quick ones unless given")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a file is not as it would be written"
    )
    options = parser.parse_args()
    records = read(options.record or sorted(HERE.glob("results/*.json")))
    old = [path for path, text in written(records).items() if not path.exists() or path.read_text() != text]
    if not options.check:
        for path, text in written(records).items():
            path.write_text(text)
    for path in old:
        print(path.relative_to(ROOT))
    if options.check and old:
        sys.exit("these files are not as the records are: run `make bench-report`")


def read(paths):
    """Returns the paths and contents of records, the oldest first, without quick ones."""
    records = [(path.resolve(), json.loads(path.read_text())) for path in paths]
    records = sorted((found for found in records if not found[1]["quick"]), key=lambda found: found[1]["date"])
    if not records:
        sys.exit("no record but quick ones in benchmarks/results: run `make bench` first")
    return records


def written(records):
    """Returns the texts of all files that show the records, by their paths."""
    by_area = {
        result["area"]: (path, record)
        for path, record in records
        for result in record["results"]
        if result["area"] in SECTIONS
    }
    main, ours = ROOT / "README.md", HERE / "README.md"
    files = {main: main.read_text(), ours: filled(ours.read_text(), RESULTS, "\n\n".join(sections(by_area)))}
    full = [
        (path, record) for path, record in records if {result["area"] for result in record["results"]} >= summary.AREAS
    ]
    if full:
        path, record = full[-1]
        files[main] = filled(files[main], SHORT, in_short(path, record, main, summary.ROWS))
        files[ours] = filled(files[ours], SHORT, in_short(path, record, ours, summary.ROWS + summary.MORE_ROWS))
        files.update((FIGURES / name, picture) for name, picture in plots.of(record).items())
    return files


def filled(text, marks, content):
    """Returns a text with other content between two marks."""
    before, rest = text.split(marks[0])
    return f"{before}{marks[0]}\n\n{content}\n\n{marks[1]}{rest.split(marks[1])[1]}"


def in_short(path, record, document, rows):
    link = os.path.relpath(path, document.parent)
    facts = summary.facts(record, summary.sides_of(record))
    return f"[One record]({link}): {facts}\n\n{table_of(*summary.of(record, rows))}"


def sections(by_area):
    sources = dict(by_area.values())
    for path, record in sources.items():
        areas = ", ".join(f"`{area}`" for area, (source, _) in by_area.items() if source == path)
        facts = summary.facts(record, record["versions"])
        yield f"{areas}: {facts} Record: [`{path.name}`](results/{path.name}), made by `{record['command']}`."
    for area, make in SECTIONS.items():
        if area in by_area:
            yield make([result for result in by_area[area][1]["results"] if result["area"] == area])


def survey(results):
    cells = {(result["table"], result["work"], result["side"]): result for result in results}
    sides = sides_in(results)
    rows = []
    for table, work in dict.fromkeys((result["table"], result["work"]) for result in results):
        found = {side: cells.get((table, work, side)) for side in sides}
        rows.append([table, work, *(micros(found[side]) for side in sides), ratio(found, "median_us", "cpprb", "ours")])
    header = ["table", "work", *(f"{NAMES[side]}, µs" for side in sides), "cpprb / ours"]
    return "### One process, as in cpprb's survey: median of a call (quartiles)\n\n" + table_of(header, rows)


def network(results):
    """Rows: payload, work, clients. Columns: our roads, the reference's equivalent, and the ratio over TCP."""
    ours = {(*key_of(result), result["road"]): result for result in results if result["side"] == "ours"}
    theirs = {key_of(result): result for result in results if result["side"] == "reference"}
    rows = []
    for payload, work, clients in dict.fromkeys(key[:3] for key in ours):
        if work == "insert_batch":
            other = theirs.get((payload, "insert", clients))
        elif work in ("sample_batch", "NumpyLoader"):
            other = theirs.get((payload, "TrajectoryDataset", clients))
        else:
            other = theirs.get((payload, work, clients))
        found = [ours.get((payload, work, clients, road)) for road in ROADS]
        tcp = found[-1]
        steady = tcp and other and not (is_unsteady(tcp) or is_unsteady(other))
        factor = f"{tcp['items_per_s'] / other['items_per_s']:.1f} ×" if steady else ""
        rows.append([payload, work, clients, *map(rate, found), rate(other), other["work"] if other else "", factor])
    for (payload, work, clients), other in theirs.items():
        if not ours:
            rows.append([payload, work, clients, "", "", "", rate(other), work, ""])
    header = ["payload", "work", "clients", *ROADS.values(), "reference", "its call", "TCP / reference"]
    notes = sorted({f"{result['payload']}: {result['note']}" for result in theirs.values() if result.get("note")})
    title = "### Server in a process of its own: items/s (MB/s; p50 and p99 of a call in µs)"
    marks = "With ~: the fastest round had more than twice the rate of the slowest; no ratio is made of such."
    text = f"{title}\n\n{marks}\n\n{table_of(header, rows)}"
    return text + ("\n\nSettings of TrajectoryDataset: " + "; ".join(notes) + "." if notes else "")


def key_of(result):
    return result["payload"], result["work"], result["clients"]


def clients(results):
    """Rows: work, payload, clients, note. Columns: each road with its rate and `client_figures`."""
    found = {(*client_key_of(result), result["road"]): result for result in results if "items_per_s" in result}
    roads = [road for road in ROADS if any(key[-1] == road for key in found)]
    rows = []
    for key in dict.fromkeys(key[:-1] for key in found):
        cells = [found.get((*key, road)) for road in roads]
        rows.append([*key, *(text for one in cells for text in (client_rate(one), *client_figures(one)))])
    figures = ("", ": server, µs an item", ": least share", ": of the best")
    names = [f"{ROADS[road]}{figure}" for road in roads for figure in figures]
    title = "### Many clients at once: items/s in all (MB/s; p50, p99 and p99.9 of a call in µs)"
    note = (
        "Least share: the rate of the least served client relative to the mean. Of the best: relative to the best "
        "number of writers. A bar is the least value that is asked for."
    )
    left_out = sorted({f"{result['clients']} writers {result['note']}" for result in results if "work" not in result})
    text = f"{title}\n\n{note}\n\n" + table_of(["work", "payload", "clients", "", *names], rows)
    return text + ("\n\n" + "; ".join(left_out) + "." if left_out else "")


def client_key_of(result):
    return result["work"], result["payload"], f"{result['clients']:,}", result["note"] or ""


def client_rate(result):
    return rate(result).replace(")", f", {short(result['p999_us'])})") if result else ""


def client_figures(result):
    """Returns the server's processor time of an item, the least share and the rate relative to the best, with bars."""
    cost = (result or {}).get("server_us_per_item")
    texts = ["" if cost is None else short(cost)]
    for name in ("least_share", "of_best"):
        value, bar = (result or {}).get(name), (result or {}).get(f"{name}_bar")
        texts.append("" if value is None else f"{value:.2f}" + (f" (bar {bar:g})" if bar else ""))
    return texts


def leaves(results):
    """Rows: kinds of values. Columns: ways to write, each with the time relative to the 0-d array."""
    found = {(result["payload"], result["work"]): result for result in results}
    ways = list(dict.fromkeys(result["work"] for result in results))
    rows = []
    for kind in dict.fromkeys(result["payload"] for result in results):
        cells = [found[kind, way] for way in ways]
        rows.append(
            [kind, *(f"{short(cell['median_us'] / cell['steps_per_call'])} ({cell['of_array']:.2f})" for cell in cells)]
        )
    title = "### A step of one value, by what the value is: median in µs (relative to the 0-d array)"
    return f"{title}\n\n" + table_of(["value", *ways], rows)


def memory(results):
    rows = [
        [
            NAMES[result["side"]],
            result["work"],
            f"{result['mib']:g} MiB" if "mib" in result else f"{result['bytes_per_item']:,.0f} bytes an item",
        ]
        for result in results
    ]
    return "### Memory of the server; a transition has 280 bytes in 5 columns\n\n" + table_of(["", "", "RSS"], rows)


def scale(results):
    rows = []
    sizes = list(dict.fromkeys(result["items"] for result in results))
    cells = {}
    for result in results:
        what = result["work"].removeprefix("gather_") if result["side"] == "numpy" else result.get("filled", "")
        cells.setdefault((result["side"], what, result.get("selector", ""), result.get("road")), {})[
            result["items"]
        ] = result
    for (side, what, selector, road), found in cells.items():
        if any("median_us" in one for one in found.values()):
            largest = found.get(sizes[-1], {})
            ratios = [largest.get("times_smallest", ""), largest.get("times_gather", "")]
            times = (micros(found.get(size)) for size in sizes)
            texts = (ratio and f"{ratio:.2f}" for ratio in ratios)
            rows.append([NAMES[side], what, selector, ROADS.get(road, ""), *times, *texts])
    header = ["", "filled by", "selector", "road", *(f"{size:,} items" for size in sizes)]
    header += ["largest / smallest, median of rounds", "largest / gathering the columns"]
    return "### A batch of 256 transitions as the table grows: median, µs (quartiles)\n\n" + table_of(header, rows)


def imports(results):
    rows = [[NAMES[result["side"]], result["work"], f"{short(1e3 * result['median_s'])} ms"] for result in results]
    return "### `import reverb` after `import numpy`\n\n" + table_of(["", "", "median"], rows)


def operations(results):
    rows = []
    for result in results:
        of = f"{result['work']}, {short(result['tables'])} table{'s' if result['tables'] > 1 else ''}"
        if "gzipped_bytes" in result:
            cost = f"{result['gzipped_bytes'] / 1e3:.3g} kB in {result['files']} files"
        elif "processor_ms" in result:
            cost = f"{result['processor_ms']:.3g} ms"
        else:
            cost = f"{result['median_us'] / 1e3:.3g} ms"
        rows.append([NAMES[result["side"]], of, cost])
    header = ["", "", "processor time of the server; of a start, the time that it takes; of the page, its size gzipped"]
    return "### Watching a server\n\n" + table_of(header, rows)


def stalls(results):
    header = ["large call", "its seconds", "longest call of another client, median ms", "rounds"]
    rows = []
    for result in results:
        rounds = result["rounds ms"]
        longest = result["longest call, median ms"]
        rows.append([result["work"], result["large call, median s"], longest, f"{min(rounds)} to {max(rounds)}"])
    return "### Large calls of another client\n\n" + table_of(header, rows)


def open_length(results):
    header = ["road", "open length, µs", "fixed length, µs", "open / fixed"]
    keys = ["road", "open, median us", "fixed, median us", "open / fixed"]
    rows = [[result[key] for key in keys] for result in results]
    return "### A row of 1,000 tokens, its length open or fixed: an insert\n\n" + table_of(header, rows)


def aio_loop(results):
    header = ["road", "phase", "longest step, ms", "p99 of the ticker, ms", "with asyncio.sleep", "ratio", "threads"]
    rows = []
    for result in results:
        ours, sleep = (f"{result[f'{name}_late_p99_ms']:.2f}" for name in ("ours", "sleep"))
        step, ratio = f"{result['ours_longest_step_cpu_ms']:.2f}", f"{result['ratio']:.2f}"
        threads = f"{result['ours_threads']:.0f}"
        rows.append([ROADS[result["road"]], result["phase"], step, ours, sleep, ratio, threads])
    title = f"### `reverb.aio` in an event loop of {results[0]['sessions']:,} sessions"
    note = "Steps in processor time; the ticker asks for 1 ms, also in the program with `asyncio.sleep` in our place."
    return f"{title}\n\n{note}\n\n" + table_of(header, rows)


def tls(results):
    header = ["item, bytes", "batch", "plain, items/s", "TLS", "TLS and tokens", "TLS / plain", "with tokens / plain"]
    rows = []
    for result in results:
        rates = [f"{result[f'{side}_items_per_s']:,}" for side in ("plain", "tls", "tokens")]
        ratios = [f"{result[f'{side}_ratio']:.2f}" for side in ("tls", "tokens")]
        rows.append([f"{result['item_bytes']:,}", result["batch"], *rates, *ratios])
    return "### Reads over TCP with TLS and tokens, by `sample_batch`\n\n" + table_of(header, rows)


def checkpoints(results):
    header = [
        "data",
        "work",
        "side",
        "seconds",
        "processor seconds",
        "peak / rest",
        "longest call, ms",
        "dm-reverb / ours",
    ]
    measured = [result for result in results if result["side"] in NAMES]
    found = {(result["payload"], result["work"], result["side"]): result for result in measured}
    rows = []
    for (payload, work, side), result in found.items():
        other = found.get((payload, work, "reference"))
        times = f"{other['seconds'] / result['seconds']:.1f} ×" if other and side == "ours" else ""
        rows.append(
            [
                f"{result['mib']:.0f} MiB in {payload}",
                work,
                NAMES[side],
                f"{result['seconds']:.1f}",
                f"{result['cpu_seconds']:.1f}",
                f"{result['peak_to_rest']:.2f}",
                f"{result['worst_call_ms']:.1f}" if "worst_call_ms" in result else "",
                times,
            ]
        )
    return "### Checkpoints\n\n" + table_of(header, rows)


def datasets(results):
    found = {(result["payload"], result["side"]): result for result in results}
    rows = []
    for payload in dict.fromkeys(payload for payload, _ in found):
        ours, theirs = found.get((payload, "tensorflow")), found.get((payload, "reference"))
        steady = ours and theirs and not (is_unsteady(ours) or is_unsteady(theirs))
        factor = f"{ours['items_per_s'] / theirs['items_per_s']:.1f} ×" if steady else ""
        notes = [side["note"] if side else "" for side in (ours, theirs)]
        rows.append([payload, rate(ours), notes[0], rate(theirs), notes[1], factor])
    title = "### `TrajectoryDataset`, batched, TensorFlow 2.15, over TCP: items/s (MB/s; p50 and p99 of a batch in µs)"
    return f"{title}\n\n" + table_of(["payload", "ours", "with", NAMES["reference"], "with", "ours / dm-reverb"], rows)


def protocols(results):
    """Rows: payload, work, clients. Columns: dm-reverb with itself, and the other mixtures relative to it."""
    found = {(r["payload"], r["work"], r["clients"], r["side"], r["server"]): r for r in results}
    rows = []
    for payload, work, clients in dict.fromkeys(key[:3] for key in found):
        base, *others = (
            found.get((payload, work, clients, *pair))
            for pair in (("reference", "reference"), ("reference", "ours"), ("ours", "reference"))
        )
        rows.append(
            [payload, work, clients, rate(base), *(cell for one in others for cell in (rate(one), of_base(one)))]
        )
    title = "### Over dm-reverb's protocol: items/s (MB/s; p50 and p99 of a call in µs), and relative to dm-reverb"
    note = (
        "The ratio is the median of the rounds, with the lowest and the highest; `sample_batch` is compared with "
        "`TrajectoryDataset`."
    )
    at_ours, at_theirs = "dm-reverb's client, our server", "our client, dm-reverb's server"
    header = ["payload", "work", "clients", "dm-reverb with itself", at_ours, "ratio", at_theirs, "ratio"]
    return f"{title}\n\n{note}\n\n{table_of(header, rows)}"


def of_base(result):
    if not result:
        return ""
    return f"{result['of_reference']:.2f} × ({result['of_reference_lowest']:.2f}–{result['of_reference_highest']:.2f})"


def loaders(results):
    """Compares each loader with the bare call that does the same."""
    found = {(result["payload"], result["road"], result["work"]): result for result in results}
    rows = []
    for (payload, road, work), result in found.items():
        if work.startswith("sample_batch"):
            continue
        bare = found[payload, road, "sample_batch + device_put" if work == "JaxLoader" else "sample_batch"]
        share = f"{100 * result['items_per_s'] / bare['items_per_s']:.0f} %"
        rows.append([work, payload, ROADS[road], micros(result), micros(bare), share])
    header = ["loader", "payload", "road", "a batch, µs", "bare call, µs", "rate / bare rate"]
    return "### Loaders: median of a batch (quartiles)\n\n" + table_of(header, rows)


def buffers(results):
    found = {(r["payload"], r["table"], r["work"], r["side"]): r for r in results}
    sides = list(dict.fromkeys(result["side"] for result in results))
    rows = []
    for payload, table, work in dict.fromkeys(key[:3] for key in found):
        rows.append([payload, table, work, *(micros(found.get((payload, table, work, side))) for side in sides)])
    header = ["payload", "table", "work", *(f"{NAMES.get(side, side)}, µs" for side in sides)]
    return "### Buffers of one process: median of a call (quartiles)\n\n" + table_of(header, rows)


def environments(results):
    rows = [
        [ROADS.get(result["road"], "no writer"), f"{result['items_per_s']:,.0f}", f"{100 * result['of_bare']:.0f} %"]
        for result in results
    ]
    title = "### 64 CartPoles in one loop, 3-step transitions written: steps/s of all together"
    return f"{title}\n\n" + table_of(["writer to", "steps/s", "of the bare loop"], rows)


def sides_in(results):
    present = {result["side"] for result in results}
    return [side for side in NAMES if side in present]


def micros(result):
    if result and "ratio" in result:
        return f"{result['ratio']:.1f} × (bar {result['limit']})"
    if not result or "median_us" not in result:
        return ""
    return f"{short(result['median_us'])} ({short(result['q1_us'])}–{short(result['q3_us'])})"


def rate(result):
    if not result:
        return ""
    mark = "~" if is_unsteady(result) else ""
    return (
        f"{mark}{short(result['items_per_s'])} ({short(result['mb_per_s'])}; "
        f"{short(result['median_us'])}, {short(result['p99_us'])})"
    )


def is_unsteady(result):
    """Whether the rounds of a cell differ so much that other load on the machine must have disturbed them."""
    return result["items_per_s_highest"] > 2 * result["items_per_s_lowest"]


def ratio(found, field, over, under):
    if not found.get(over) or not found.get(under):
        return ""
    return f"{found[over][field] / found[under][field]:.1f} ×"


SECTIONS = {
    "survey": survey,
    "network": network,
    "clients": clients,
    "leaves": leaves,
    "memory": memory,
    "scale": scale,
    "imports": imports,
    "checkpoints": checkpoints,
    "environments": environments,
    "datasets": datasets,
    "protocols": protocols,
    "loaders": loaders,
    "buffers": buffers,
    "operations": operations,
    "stalls": stalls,
    "open_length": open_length,
    "aio_loop": aio_loop,
    "tls": tls,
}

if __name__ == "__main__":
    main()
