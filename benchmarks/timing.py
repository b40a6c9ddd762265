"""Times of calls, taken in a worker and put together in `run.py`. Standard library only: every side imports it."""

import statistics
import threading
import time

# More times than these are thinned out: quantiles do not change by it.
MOST_TIMES = 5000


def measure(call, seconds, items=1, warm_up=3, least=5):
    """Repeats a call for some seconds.

    Args:
      call: What is timed.
      seconds: How long, but at least `least` calls.
      items: Items that one call moves.
      warm_up: Calls before, which do not count.
      least: The lowest number of calls.

    Returns:
      `times_us` of single calls, `calls`, and `items_per_s` over all of them.
    """
    for _ in range(warm_up):
        call()
    clock, times = time.perf_counter, []
    start = clock()
    end = start + seconds
    before = start
    while before < end or len(times) < least:
        call()
        after = clock()
        times.append(after - before)
        before = after
    step = len(times) // MOST_TIMES + 1
    return {
        "times_us": [round(1e6 * one, 2) for one in times[::step]],
        "calls": len(times),
        "items_per_s": items * len(times) / (before - start),
    }


def measure_threads(make_call, threads, seconds, items=1):
    """Likewise on several threads at once; `make_call()` gives each its own call. Returns what `together` returns."""
    results = [None] * threads
    barrier = threading.Barrier(threads)

    def work(index):
        call = make_call()
        barrier.wait()
        results[index] = measure(call, seconds, items)

    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return together(results)


def together(results):
    """Results of callers that worked at the same time as one."""
    return {
        "times_us": [one for result in results for one in result["times_us"]],
        "calls": sum(result["calls"] for result in results),
        "items_per_s": sum(result["items_per_s"] for result in results),
    }


def summary(rounds, bytes_per_item=None):
    """The rounds of one cell as its result: quantiles over all calls, rates as the median round with the extremes."""
    times = sorted(one for result in rounds for one in result["times_us"])
    rates = sorted(result["items_per_s"] for result in rounds)
    rate = statistics.median(rates)
    result = {
        "median_us": round(quantile(times, 0.5), 2),
        "q1_us": round(quantile(times, 0.25), 2),
        "q3_us": round(quantile(times, 0.75), 2),
        "p99_us": round(quantile(times, 0.99), 2),
        "items_per_s": round(rate, 1),
        "items_per_s_lowest": round(rates[0], 1),
        "items_per_s_highest": round(rates[-1], 1),
        "calls": sum(result["calls"] for result in rounds),
    }
    if bytes_per_item is not None:
        result["mb_per_s"] = round(rate * bytes_per_item / 1e6, 2)
    return result


def quantile(times, share):
    """Of sorted times."""
    position = share * (len(times) - 1)
    low = int(position)
    high = min(low + 1, len(times) - 1)
    return times[low] + (position - low) * (times[high] - times[low])
