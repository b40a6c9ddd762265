"""The cost of watching a server: processor time of scrapes and of open pages, size of the page, start of a server.

The server has a process of its own and is otherwise idle. What it takes while nobody watches is subtracted.
`--base` names an interpreter with an older version of this package, whose servers start in turn with ours.
"""

import http.client
import json
import re
import statistics
import time

PAGES = 5
# What a page asks for each second, without its first look and without histograms.
DOCUMENTS = ("server", "tables", "waits", "clients", "history?since={since}")


def run(sides, quick):
    if "ours" not in sides:
        return
    scrapes, seconds, items = (20, 2, 10_000) if quick else (300, 20, 1_000_000)
    for tables in (1, 100):
        with sides.worker("ours") as server:
            port = server.call("operations_serve", tables=tables, items=items if tables == 1 else 0)
            rounds = [scraped(server, port, scrapes) for _ in range(3)]
            yield cell("scrape", tables, rounds)
            if tables == 1:
                yield {"side": "ours", "work": "page", "tables": tables, **page_size(port)}
            rounds = [watched(server, port, seconds) - idle(server, seconds) for _ in range(1 if quick else 3)]
            yield cell(f"{PAGES} open pages for a second", tables, rounds, items=items if tables == 1 else None)
    yield from starts(sides, 2 if quick else 15)


def cell(work, tables, rounds, **labels):
    """Makes a result of processor times in seconds."""
    milliseconds = [1e3 * one for one in rounds]
    return {
        "side": "ours",
        "work": work,
        "tables": tables,
        **labels,
        "processor_ms": round(statistics.median(milliseconds), 3),
        "processor_ms_lowest": round(min(milliseconds), 3),
        "processor_ms_highest": round(max(milliseconds), 3),
    }


def scraped(server, port, count):
    """Returns the processor time of a scrape in seconds, each with a connection of its own, as some scrapers do."""
    ask(http.client.HTTPConnection("127.0.0.1", port), "/metrics")
    before = server.call("operations_processor_s")
    for _ in range(count):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        ask(connection, "/metrics")
        connection.close()
    return (server.call("operations_processor_s") - before) / count


def watched(server, port, seconds):
    """Returns the processor time of a second of open pages, in seconds."""
    pages = [[http.client.HTTPConnection("127.0.0.1", port), 0] for _ in range(PAGES)]
    for page in pages:
        refresh(page)
    before = server.call("operations_processor_s")
    start = time.monotonic()
    for second in range(seconds):
        for page in pages:
            refresh(page)
        time.sleep(max(0, start + second + 1 - time.monotonic()))
    return (server.call("operations_processor_s") - before) / seconds


def idle(server, seconds):
    """Returns the processor time of a second in which nobody asks, in seconds."""
    before = server.call("operations_processor_s")
    time.sleep(seconds)
    return (server.call("operations_processor_s") - before) / seconds


def refresh(page):
    connection, since = page
    for document in DOCUMENTS:
        answer = ask(connection, f"/api/v1/{document.format(since=since)}")
        if document.startswith("history"):
            page[1] = json.loads(answer)["next"]


def page_size(port):
    """Returns how many bytes a browser receives for the page, and in how many files."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    sizes, waiting = {}, [""]
    while waiting:
        name = waiting.pop()
        sizes[name] = len(ask(connection, f"/{name}", {"Accept-Encoding": "gzip"}))
        text = ask(connection, f"/{name}").decode()
        named = re.findall(r'(?:href|src|from)=?\s*"(?:\./)?([\w.]+\.(?:css|js|svg))"', text)
        waiting += sorted({*named} - {*sizes, *waiting})
    return {"files": len(sizes), "gzipped_bytes": sum(sizes.values())}


def ask(connection, path, headers=None):
    connection.request("GET", path, headers=headers or {})
    response = connection.getresponse()
    answer = response.read()
    if response.status != 200:
        raise RuntimeError(f"GET {path}: {response.status} {answer[:200]!r}")
    return answer


def starts(sides, rounds):
    """Measures starts in turn: with HTTP, without, and of the older version."""
    kinds = {("ours", "start"): {}, ("ours", "start without HTTP"): {"http_port": None}, ("base", "start"): {}}
    kinds = {kind: options for kind, options in kinds.items() if kind[0] in sides}
    times = {kind: [] for kind in kinds}
    workers = {side: sides.worker(side) for side, _ in kinds}
    try:
        for _ in range(rounds):
            for kind, options in kinds.items():
                times[kind] += workers[kind[0]].call("operations_start", count=20, options=options)[2:]
    finally:
        for worker in workers.values():
            worker.end()
    for (side, work), taken in times.items():
        low, middle, high = statistics.quantiles(taken, n=4)
        yield {
            "side": side,
            "work": work,
            "tables": 1,
            "median_us": round(middle, 1),
            "q1_us": round(low, 1),
            "q3_us": round(high, 1),
        }
