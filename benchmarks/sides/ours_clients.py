"""Our side of the area `clients`: many writers in one process, or some samplers."""

import collections
import contextlib
import functools
import resource
import time

import payloads
import timing

import reverb

__all__ = [
    "clients_close",
    "clients_open_samplers",
    "clients_open_writers",
    "clients_raise_open_files",
    "clients_sample",
    "clients_write",
]

# Longest wait for the oldest turn, in seconds, before the others are looked at again.
PATIENCE = 0.001

state = {"clients": [], "writers": [], "draws": []}


def clients_raise_open_files():
    """Lets this process open as many files as it may. Returns that number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A system may refuse what it calls the hard limit.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return 2**31 if soft == resource.RLIM_INFINITY else soft


def clients_open_writers(address, payload, clients, writers, turn):
    """Opens writers, equally distributed over clients, and lets each write a turn of so many steps.

    The steps of a turn fill a chunk, so they leave at once.
    """
    state["clients"] = [reverb.Client(address) for _ in range(clients)]
    state["steps"] = payloads.steps_of(payload, turn)
    state["writers"] = [
        state["clients"][index % clients].trajectory_writer(turn, max_chunk_length=turn, max_in_flight_items=turn)
        for index in range(writers)
    ]
    for writer in state["writers"]:
        write_turn(writer)
    for writer in state["writers"]:
        writer.flush()


def clients_open_samplers(address, payload, clients, table):
    """Opens clients, and lets each draw a few batches."""
    state["clients"] = [reverb.Client(address) for _ in range(clients)]
    state["draws"] = [
        functools.partial(client.sample_batch, table, payloads.batch_size(payload)) for client in state["clients"]
    ]
    for draw in state["draws"]:
        for _ in range(3):
            draw()


def clients_sample(payload, seconds):
    """Draws batches for some seconds, from a thread of each client. Returns what `timing.together` returns."""
    draws = iter(state["draws"])
    threads, items = len(state["draws"]), payloads.batch_size(payload)
    # Beside many writers, draws that are not measured would take a part of the time in which these write.
    return timing.measure_threads(lambda: next(draws), threads, seconds, items, warm_up=0)


def write_turn(writer):
    for step in state["steps"]:
        writer.append(step)
        history = writer.history
        writer.create_item("in", 1.0, {name: history[name][-1] for name in step})


def clients_write(seconds):
    """Lets the writers write from this thread for some seconds, and flushes them all.

    A writer's turn begins when its last one is confirmed. Of those that are ready the one whose last turn is the oldest
    comes first, and one that is not ready keeps no other waiting, so a writer that the server serves less has fewer
    turns.

    Returns:
      What `timing.together` returns. A call is a turn, from its first step until it was seen to be confirmed.
    """
    clock, turn = time.perf_counter, len(state["steps"])
    turns, times = collections.Counter(), []
    waiting = collections.deque((index, writer, None) for index, writer in enumerate(state["writers"]))
    start = clock()
    end = start + seconds
    while clock() < end:
        found = next((place for place, (_, writer, _) in enumerate(waiting) if writer.has_room(turn)), None)
        if found is None:
            with contextlib.suppress(reverb.DeadlineExceededError):
                waiting[0][1].flush(timeout=PATIENCE)
            continue
        index, writer, began = waiting[found]
        del waiting[found]
        now = clock()
        if began is not None:
            times.append(now - began)
        write_turn(writer)
        turns[index] += 1
        waiting.append((index, writer, now))
    for _, writer, began in waiting:
        writer.flush()
        if began is not None:
            times.append(clock() - began)
    elapsed = clock() - start
    step = len(times) // timing.MOST_TIMES + 1
    rates = [turn * turns[index] / elapsed for index in range(len(state["writers"]))]
    return {
        "times_us": [round(1e6 * one, 2) for one in times[::step]],
        "calls": len(times),
        "items_per_s": sum(rates),
        "rates": rates,
    }


def clients_close():
    for opened in (*state["writers"], *state["clients"]):
        opened.close()
    state.update(clients=[], writers=[], draws=[])
