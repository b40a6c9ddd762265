"""Writes the newest records, or given ones, into `README.md` as tables, and draws their plot.

Each area is shown from the newest record that has it.

python benchmarks/report.py [benchmarks/results/<date>-<name>.json ...]
"""

import argparse
import json
import pathlib

HERE = pathlib.Path(__file__).parent
START, END = "<!-- results: written by report.py -->", "<!-- end of results -->"
NAMES = {
    "ours": "ours",
    "reference": "dm-reverb 0.14",
    "cpprb": "cpprb 11",
    "numpy": "bare gather",
    "flashbax": "Flashbax",
    "torchrl": "TorchRL",
    "tensorflow": "ours in TensorFlow",
    "base": "ours, older",
}
ROADS = {"same_process": "same process", "unix": "Unix socket", "tcp": "TCP"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=pathlib.Path, nargs="*", help="all but quick ones unless given")
    by_area = newest_by_area(parser.parse_args().record or sorted(HERE.glob("results/*.json")))
    text = "\n\n".join(sections(by_area))
    readme = HERE / "README.md"
    before, rest = readme.read_text().split(START)
    after = rest.split(END)[1]
    readme.write_text(f"{before}{START}\n\n{text}\n\n{END}{after}")
    print(readme)


def newest_by_area(paths):
    """Returns, for each area, the path and the content of the record to show."""
    records = [(path, json.loads(path.read_text())) for path in paths]
    records = sorted((found for found in records if not found[1]["quick"]), key=lambda found: found[1]["date"])
    if not records:
        raise SystemExit("no record but quick ones in benchmarks/results: run benchmarks/run.py first")
    return {result["area"]: (path, record) for path, record in records for result in record["results"]}


def sections(by_area):
    sources = dict(by_area.values())
    for path, record in sources.items():
        machine = record["machine"]
        areas = ", ".join(f"`{area}`" for area, (source, _) in by_area.items() if source == path)
        yield (
            f"{areas}: {machine['processor']}, {machine['cores']} cores, {machine['memory_gb']:g} GB; memcpy "
            f"{machine['memcpy_gb_per_s']} GB/s, loopback {machine['loopback_gb_per_s']} GB/s; {record['date'][:10]}. "
            f"Versions: {'; '.join(f'{NAMES[side]}: {spelled(found)}' for side, found in record['versions'].items())}. "
            f"Record: [`{path.name}`](results/{path.name}), made by `{record['command']}`."
        )
    if "network" in by_area:
        path, record = by_area["network"]
        plot = path.with_suffix(".png")
        draw(record, plot)
        yield f"![Items a second by payload and road](results/{plot.name})"
    for area, make in (
        ("survey", survey),
        ("network", network),
        ("leaves", leaves),
        ("memory", memory),
        ("scale", scale),
        ("imports", imports),
        ("checkpoints", checkpoints),
        ("environments", environments),
        ("datasets", datasets),
        ("protocols", protocols),
        ("loaders", loaders),
        ("buffers", buffers),
        ("operations", operations),
        ("stalls", stalls),
        ("open_length", open_length),
        ("torchrl", torchrl),
        ("aio_loop", aio_loop),
        ("tls", tls),
    ):
        if area in by_area:
            yield make([result for result in by_area[area][1]["results"] if result["area"] == area])


def spelled(versions):
    return ", ".join(f"{name} {version}" for name, version in versions.items())


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
    for side, road in dict.fromkeys((result["side"], result.get("road")) for result in results):
        found = [
            next((r for r in results if (r["side"], r.get("road"), r["items"]) == (side, road, size)), None)
            for size in sizes
        ]
        if any(one and "median_us" in one for one in found):
            ratio = found[-1].get("times_smallest", "") if found[-1] else ""
            rows.append([NAMES[side], ROADS.get(road, ""), *(micros(one) for one in found), ratio and f"{ratio:.2f}"])
    header = ["", "road", *(f"{size:,} items" for size in sizes), "largest / smallest, median of rounds"]
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


def torchrl(results):
    header = ["work", "buffer", "median of a call, µs", "rounds", "TorchRL / this"]
    rows = []
    for result in results:
        rounds = f"{min(result['rounds_us'])} to {max(result['rounds_us'])}"
        rows.append([result["work"], result["side"], result["median_us"], rounds, f"{result['TorchRL / this']:.2f}"])
    return "### ReverbReplayBuffer and TorchRL's prioritized buffer\n\n" + table_of(header, rows)


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
    return f"{title}\n\n" + table_of(["payload", "ours", "with", "dm-reverb 0.14", "with", "ours / dm-reverb"], rows)


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


def short(number):
    """Formats a number with three significant digits."""
    for limit, unit in ((1e6, " M"), (1e4, " k")):
        if number >= limit:
            return f"{number / (1e6 if unit == ' M' else 1e3):.3g}{unit}"
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def table_of(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def draw(record, path):
    """Plots batches drawn and items inserted per second by one client, with one bar per road, beside the reference."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = [one for one in record["results"] if one["area"] == "network" and one["clients"] == 1]
    payloads = list(dict.fromkeys(one["payload"] for one in results))
    panels = (("Drawing batches", "sample_batch", "TrajectoryDataset"), ("Inserting", "insert_batch", "insert"))
    figure, axes = plt.subplots(1, len(panels), figsize=(11, 4), layout="constrained")
    for axis, (title, work, theirs) in zip(axes, panels, strict=True):
        bars = [(f"ours, {name}", "ours", work, road) for road, name in ROADS.items()]
        bars.append((f"dm-reverb 0.14, {theirs}", "reference", theirs, "tcp"))
        for offset, (label, side, call, road) in enumerate(bars):
            heights = [
                next(
                    (
                        one["items_per_s"]
                        for one in results
                        if (one["payload"], one["side"], one["work"], one["road"]) == (payload, side, call, road)
                    ),
                    0,
                )
                for payload in payloads
            ]
            if any(heights):
                axis.bar([x + 0.2 * offset for x in range(len(payloads))], heights, 0.2, label=label)
        axis.set_yscale("log")
        axis.set_xticks([x + 0.3 for x in range(len(payloads))], payloads)
        axis.set_title(f"{title}, one client")
        axis.set_ylabel("items/s")
        axis.legend(fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
