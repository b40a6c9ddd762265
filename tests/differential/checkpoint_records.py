"""Reads the records of a checkpoint."""

import pathlib
import struct
import zlib

from google.protobuf import json_format


def records(path, name):
    """Returns the records of a file. Other tests cover the checksums."""
    data = zlib.decompress((pathlib.Path(path) / name).read_bytes())
    found, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        found.append(data[at + 12 : at + 12 + length])
        at += length + 16
    return found


def saved(path):
    """Returns a checkpoint's tables and items as JSON, the keys of its chunks, and the items' order in each table."""
    from reverb.cc import schema_pb2
    from reverb.cc.checkpointing import checkpoint_pb2

    tables = [checkpoint_pb2.PriorityTableCheckpoint.FromString(one) for one in records(path, "tables.tfrecord")]
    items = [schema_pb2.PrioritizedItem.FromString(one) for one in records(path, "items.tfrecord")]
    chunks = [schema_pb2.ChunkData.FromString(one) for one in records(path, "chunks.tfrecord")]
    by_table = {message.table_name: [] for message in tables}
    for item in items:
        by_table[item.table].append(json_format.MessageToDict(item))
    described = {chunk.chunk_key: describe_chunk(chunk) for chunk in chunks}
    return {one.table_name: json_format.MessageToDict(one) for one in tables}, by_table, described


def describe_chunk(chunk):
    shapes = [[dim.size for dim in tensor.tensor_shape.dim] for tensor in chunk.data.tensors]
    return json_format.MessageToDict(chunk.sequence_range), shapes, chunk.data_tensors_len, chunk.data_uncompressed_size
