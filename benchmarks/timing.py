"""Times of calls, measured in a worker and combined in `run.py`.

Every side imports this module, so it uses the standard library only.
"""

import statistics
import threading
import time

# A larger number of times is thinned out, which does not change quantiles.
MOST_TIMES = 5000


def measure(call, seconds, items=1, warm_up=3, least=5):
    """Repeats a call for some seconds.

    Args:
      call: Function to measure.
      seconds: Duration of the measurement in seconds; at least `least` calls are made.
      items: Number of items that one call moves.
      warm_up: Number of calls before the measurement.
      least: Minimum number of calls.

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


def measure_threads(make_call, threads, seconds, items=1, warm_up=3):
    """Measures on several threads at once, each with its own `make_call()`. Returns what `together` returns."""
    results = [None] * threads
    barrier = threading.Barrier(threads)

    def work(index):
        call = make_call()
        barrier.wait()
        results[index] = measure(call, seconds, items, warm_up)

    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return together(results)


def together(results):
    """Combines the results of callers that ran at the same time."""
    return {
        "times_us": [one for result in results for one in result["times_us"]],
        "calls": sum(result["calls"] for result in results),
        "items_per_s": sum(result["items_per_s"] for result in results),
        # Of each caller.
        "rates": [rate for result in results for rate in result.get("rates", [result["items_per_s"]])],
    }


def summary(rounds, bytes_per_item=None):
    """Combines the rounds of one cell: quantiles over all calls, and the rate of the median round with the extremes."""
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
    """Returns a quantile of sorted times."""
    position = share * (len(times) - 1)
    low = int(position)
    high = min(low + 1, len(times) - 1)
    return times[low] + (position - low) * (times[high] - times[low])
