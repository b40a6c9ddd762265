"""Helpers for the tests of writers."""

import numpy as np
from behaviour_support import draw


def flat(client, table="table"):
    [sample] = draw(client, 1, table)
    return [column.tolist() for column in sample.data]


def write_steps(writer, count, start=0):
    for i in range(start, start + count):
        writer.append({"x": np.int64(i)})


def rows(column):
    return [None if cell is None else int(cell.numpy()) for cell in column]
