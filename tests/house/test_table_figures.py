"""The class of a table's figures is that of their declaration, and the numbers of their fields never change."""

import pathlib
import re

import table_figures

TOP = pathlib.Path(__file__).parents[2]
PROTO = "proto/reverb/replay/v1/replay.proto"
# Clients and servers of other versions know them.
NUMBERS = {
    "size_bytes": 2,
    "waiting_inserts": 4,
    "waiting_samples": 5,
    "undelivered_samples": 8,
    "removed": 9,
    "weight": 10,
    "referenced_bytes": 13,
    "index_bytes": 14,
    "chunks": 15,
    "unsampled_removals": 16,
    "priority_updates": 17,
    "insert_bytes": 18,
    "sample_bytes": 19,
    "last_insert_at": 20,
    "last_sample_at": 21,
    "longest_insert_wait_seconds": 22,
    "longest_sample_wait_seconds": 23,
    "insert_wait_seconds": 24,
    "sample_wait_seconds": 25,
    "sample_age_seconds": 26,
    "removed_times_sampled": 27,
    "largest_priority": 28,
    "inserts_by_client": 29,
    "process_inserts": 30,
    "process_samples": 31,
    "returned_samples": 32,
    "returned_items": 33,
}


def fields_of_status():
    """The label and the number of each field of the message."""
    message = re.search(r"^message TableStatus \{(.*?)^\}", (TOP / PROTO).read_text(), re.MULTILINE | re.DOTALL)[1]
    found = re.findall(r"^ +(optional )?([\w.]+) (\w+) = (\d+);", message, re.MULTILINE)
    return {name: (bool(label) or kind[0].isupper(), int(number)) for label, kind, name, number in found}


def test_figures_are_read():
    """A check that sees no figures would accept every class."""
    figures = list(table_figures.figures_of(TOP))
    assert {figure.group for figure in figures} == {"reference", "first", "later"}
    assert len(figures) >= 30
    assert all(figure.help.endswith(".") for figure in figures)


def test_class_has_the_declared_figures():
    known, made = (TOP / table_figures.CLASS).read_text(), table_figures.python_class(TOP)
    missing = [line.split(":")[0].strip() for line in made.splitlines() if line not in known]
    assert known == made, f"{table_figures.CLASS} lacks {missing}: run `make table-figures`"


def test_message_has_each_figure_and_tells_absent_from_0():
    fields = fields_of_status()
    for figure in table_figures.figures_of(TOP):
        if figure.group != "reference":
            assert figure.field in fields, f"{PROTO} has no field `{figure.field}`"
            assert fields[figure.field][0], f"the field `{figure.field}` in {PROTO} is not optional"


def test_numbers_of_fields_stay():
    known = fields_of_status()
    assert {name: known.get(name, (None, None))[1] for name in NUMBERS} == NUMBERS
    assert len({number for _, number in known.values()}) == len(known)
