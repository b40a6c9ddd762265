"""The clients of `killed_sharers.py`: what they do, what they note of it, and what their notes must say.

Each row has its number in every element, so a torn one is seen. Rows of a source are numbered without gaps, and each
source is one thread: a writer of large rows, inserts of several of them, and a writer of small rows. A reader of each
table holds its arrays for a while, and looks at them again before it drops them. A client and its killer note what they
do in one file, a line each, so that the order of the notes is that of what they tell.
"""

import collections
import itertools
import json
import math
import os
import random
import sys
import threading
import time
import traceback

import numpy as np

import reverb
from reverb import errors

# The width of the rows of each table: 400 kB, and a few bytes.
WIDTHS = {"large": 100_000, "small": 4}
# Rows that a table holds before its writers wait.
CAPACITY = 48
# Rows of a call, at most.
MOST_ROWS = 8
# What a server may have of a table when it is killed: what is there, and what is on its way to the reader.
MOST_LOST = CAPACITY + MOST_ROWS
# The table of each source. The rows of one are numbered from its place here, times more rows than it ever has.
SOURCES = {"writer": "large", "inserts": "large", "small writer": "small"}
ROWS_A_SOURCE = 10_000_000
LONGEST_HELD_S = 0.5


def tables():
    return [reverb.Table.queue(name, CAPACITY) for name in WIDTHS]


def rows(table, numbers):
    """Returns rows with these numbers."""
    return np.repeat(np.array(numbers, np.int32)[:, None], WIDTHS[table], axis=1)


def numbers_of(data):
    """Returns the numbers of rows. Fails if one is torn."""
    data = data.reshape(len(data), -1)
    assert (data == data[:, :1]).all(), "a torn row"
    return data[:, 0].tolist()


class Notes:
    """Notes that outlive the processes that make them.

    Args:
      path: The file.
    """

    def __init__(self, path):
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        self._all, self._read_to = [], 0

    def note(self, *what):
        os.write(self._file, (json.dumps([time.monotonic(), *what]) + "\n").encode())

    def read(self):
        """Returns all notes, each with its time first. Fails if one tells of a failure."""
        new = os.pread(self._file, os.fstat(self._file).st_size - self._read_to, self._read_to)
        # The last line may be one that is just written.
        new = new[: new.rfind(b"\n") + 1]
        for line in new.splitlines():
            _, what, *details = note = json.loads(line)
            assert what != "failed", details[0]
            self._all.append(note)
        self._read_to += len(new)
        return self._all

    def close(self):
        os.close(self._file)


class Sharer:
    """A client that shares memory with its server in both directions, until it is killed or told to end.

    Args:
      address: Address of the server.
      notes: Its notes.
    """

    def __init__(self, address, notes):
        self.client = reverb.Client(address)
        self.notes = notes
        self.is_ending = threading.Event()
        self._all_written = threading.Event()
        self._random = random.Random()

    def work(self):
        """Works until it is told to end. Then it finishes what it has begun, reads all that is there, and is closed."""
        writing = [self._start(self._write, source) for source in ("writer", "small writer")]
        writing.append(self._start(self._insert, "inserts"))
        reading = [self._start(self._read, table) for table in WIDTHS]
        sys.stdin.readline()
        self.is_ending.set()
        for thread in writing:
            thread.join()
        self._all_written.set()
        for thread in reading:
            thread.join()
        self.client.close()
        self.notes.note("closed")
        # Until it was seen what is left of it.
        sys.stdin.read()

    def _start(self, work, name):
        def noted():
            try:
                work(name)
            except BaseException:
                self.notes.note("failed", traceback.format_exc())

        thread = threading.Thread(target=noted)
        thread.start()
        return thread

    def _batches(self, source):
        """Yields the numbers of the rows of calls, and notes that they begin."""
        numbers = itertools.count(ROWS_A_SOURCE * list(SOURCES).index(source))
        while not self.is_ending.is_set():
            batch = list(itertools.islice(numbers, self._random.randrange(1, MOST_ROWS + 1)))
            self.notes.note("begin", source, batch[0], batch[-1])
            yield batch
            time.sleep(self._random.uniform(0.0, 0.02))

    def _write(self, source):
        table = SOURCES[source]
        with self.client.trajectory_writer(1) as writer:
            for batch in self._batches(source):
                for row in rows(table, batch):
                    writer.append(row)
                    writer.create_item(table, 1.0, writer.history[-1:])
                writer.flush()
                self.notes.note("confirmed", source, batch[0], batch[-1])

    def _insert(self, source):
        table = SOURCES[source]
        for batch in self._batches(source):
            try:
                self.client.insert_batch(rows(table, batch), {table: 1.0})
            except errors.UnavailableError:
                time.sleep(0.01)
            else:
                self.notes.note("confirmed", source, batch[0], batch[-1])

    def _read(self, table):
        held = collections.deque()
        while not (self._all_written.is_set() and self._is_empty(table)):
            drop(held, time.monotonic())
            if self._random.random() < 0.1:
                # The table becomes full.
                time.sleep(self._random.uniform(0.0, 0.3))
            self.notes.note("draw", table)
            try:
                data = self.client.sample_batch(table, self._random.randrange(1, MOST_ROWS + 1), timeout=0.1).data[0]
            except errors.DeadlineExceededError:
                # Fewer rows may be there.
                continue
            except errors.UnavailableError:
                time.sleep(0.01)
                continue
            # Before all of them are looked at, since the server learns soon that they are here.
            numbers = data.reshape(len(data), -1)[:, 0].tolist()
            self.notes.note("read", table, numbers)
            assert numbers_of(data) == numbers
            held.append((time.monotonic() + self._random.uniform(0.0, LONGEST_HELD_S), data, numbers))
            del data
        drop(held, math.inf)

    def _is_empty(self, table):
        return self.client.server_info()[table].current_size == 0


def drop(held, now):
    """Drops arrays that were held until now, unless older ones are held for longer. Fails if one has changed."""
    while held and held[0][0] <= now:
        _, data, numbers = held.popleft()
        assert numbers_of(data) == numbers, "an array has changed"
        del data


# What notes must say. The rows of a source are counted from 0 here.


def of_source(numbers, source):
    """Returns those numbers that are of a source."""
    place = list(SOURCES).index(source)
    return [number % ROWS_A_SOURCE for number in numbers if number // ROWS_A_SOURCE == place]


def is_run(numbers):
    return numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True


class Told:
    """What notes tell of a source.

    Args:
      notes: The notes.
      source: The name of the source.

    Attributes:
      begun: The place in the notes at which each call began, and its rows.
      confirmed: The same of those that were confirmed, by the place of the confirmation.
      reads: The places at which each batch was asked for and was here, when, and its rows.
      kills: The places of the kills.
    """

    def __init__(self, notes, source):
        self.begun, self.confirmed, self.reads, self.kills = [], [], [], []
        drawn = None
        for place, (at, what, *details) in enumerate(notes):
            if what == "killed":
                self.kills.append(place)
            elif what in ("begin", "confirmed") and details[0] == source:
                first, last = of_source(details[1:], source)
                calls = self.begun if what == "begin" else self.confirmed
                calls.append((place, range(first, last + 1)))
            elif what == "draw" and details[0] == SOURCES[source]:
                drawn = place
            elif what == "read" and (numbers := of_source(details[1], source)):
                self.reads.append((drawn, place, at, numbers))

    def last(self, calls, before=math.inf):
        """Returns the last row of calls that were noted before a place, or -1."""
        return max((rows[-1] for place, rows in calls if place < before), default=-1)


def check_killed_client(notes, killed_at, drained):
    """Checks what a client has noted that was killed, and what its tables still gave. Returns counts.

    Args:
      notes: Its notes.
      killed_at: When it was killed.
      drained: The numbers of the rows that came after that, by table.
    """
    counts = collections.Counter()
    for source, table in SOURCES.items():
        told = Told(notes, source)
        reads = [(at, number) for _, _, at, numbers in told.reads for number in numbers]
        noted, rest = [number for _, number in reads], of_source(drained[table], source)
        assert noted == list(range(len(noted))), f"{source}: {noted} were read"
        assert is_run(rest), f"{source}: {rest} were there"
        assert not rest or rest[0] <= len(noted), f"{source}: lost {len(noted)} to {rest[0] - 1}"
        again = [at for at, number in reads if rest and number >= rest[0]]
        assert all(at > killed_at - 1.0 for at in again), f"{source}: rows came again that were here for a second"
        last, confirmed, begun = [-1, *noted, *rest][-1], told.last(told.confirmed), told.last(told.begun)
        assert confirmed <= last <= begun, f"{source}: {last} came last, {confirmed} was confirmed, {begun} was begun"
        counts.update({f"rows of the {source}": last + 1, "unconfirmed rows that arrived": last - confirmed})
        counts["rows that came again"] += len(again)
    return counts


def check_killed_servers(notes):
    """Checks what a client has noted whose servers were killed, which had nothing of those before. Returns counts."""
    counts = collections.Counter()
    for source in SOURCES:
        told = Told(notes, source)
        before, last = 0, -1
        for drawn, place, _, numbers in told.reads:
            for number in numbers:
                if number != last + 1:
                    counts.update(check_step(told, source, (before, place), last, number))
                before, last = drawn, number
            counts[f"rows of the {source}"] += len(numbers)
        assert last == told.last(told.begun), f"{source}: {last} came last, {told.last(told.begun)} was begun"
    return counts


def check_step(told, source, between, last, row):
    """Checks that a row may come after the last one because a server was killed. Returns counts.

    What the server had in its table is lost. A writer sends what was not confirmed to the next one; an insert sends
    nothing again. A server may confirm an item before one that was inserted earlier and waited, so what is sent again
    may have gaps.

    Args:
      told: What is told of the source.
      source: The source.
      between: The places in the notes between which the server may have changed.
      last: The last row.
      row: The row after it.
    """
    since, place = between
    kills = [kill for kill in told.kills if kill < place]
    recent = [kill for kill in kills if kill > since]
    assert kills if row > last else recent, f"{source}: {row} came after {last}"
    later = [rows for begun_at, rows in told.begun if begun_at > kills[-1]]
    lost = row - last - 1
    if source == "inserts":
        assert lost >= 0, f"{source}: {row} to {last} came twice"
        confirmed = {rows for _, rows in told.confirmed}
        later = [rows for rows in later if rows in confirmed]
        lost = sum(last < one < row for rows in confirmed for one in rows)
    else:
        confirmed = told.last(told.confirmed, before=kills[-1])
        assert row > confirmed, f"{source}: {row} came, but rows to {confirmed} were confirmed by servers before"
    must_come = min((rows[0] for rows in later), default=math.inf)
    assert row <= must_come, f"{source}: {row} came after {last}, but {must_come} was written after the kill"
    assert lost <= max(1, len(recent)) * MOST_LOST, f"{source}: {lost} rows were lost with {len(recent)} servers"
    return {"rows that were lost with a server": max(lost, 0), "rows that came again": max(-lost, 0)}
