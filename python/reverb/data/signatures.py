"""Converts signatures of tables between nests of specs and the bytes that servers store."""

import functools
import importlib
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from reverb import _protos
from reverb.data import dtypes, tensor_proto
from reverb.tensor_spec import BoundedTensorSpec, TensorSpec, spec_from_leaf

# Name, TensorFlow number of the dtype, and dimensions (-1 if unknown; None if the rank is unknown).
FlatSpec = tuple[str, int, list[int] | None]
# Serialized nest, and the specs of its leaves.
FlatSignature = tuple[bytes, list[FlatSpec]]


def encode(signature: Any) -> bytes | None:
    """Serializes a signature as a `tensorflow.StructuredValue`.

    Args:
      signature: Nest of specs that `spec_from_leaf` accepts. Named tuples keep their name and fields, and lists differ
        from tuples.

    Returns:
      The bytes; None if there is no signature, that is, for None and empty nests.

    Raises:
      ValueError: A leaf is not a spec.
      TypeError: A key of a mapping is not a str.
    """
    if not _is_given(signature):
        return None
    _check_specs(signature, ())
    message = _protos.message_class("tensorflow.StructuredValue")()
    encode_nest(signature, message, _encode_leaf)
    return bytes(message.SerializeToString(deterministic=True))


def _is_given(signature: Any) -> bool:
    return bool(signature) if isinstance(signature, (tuple, list, Mapping)) else signature is not None


def encode_nest(node: Any, message: Any, encode_leaf: Callable[[Any, Any], None]) -> None:
    """Writes a nest into a `tensorflow.StructuredValue`.

    Args:
      node: Nest of mappings, named tuples, tuples and lists; any other object is a leaf.
      message: Empty `tensorflow.StructuredValue` message to fill.
      encode_leaf: Function that is called with each leaf and its empty message, in the order of the columns.

    Raises:
      TypeError: A key of a mapping is not a str.
    """
    if isinstance(node, Mapping):
        message.dict_value.SetInParent()
        for key in _sorted_keys(node):
            encode_nest(node[key], message.dict_value.fields[key], encode_leaf)
    elif isinstance(node, tuple) and hasattr(node, "_fields"):
        message.named_tuple_value.name = type(node).__name__
        for field, value in zip(node._fields, node, strict=True):
            encode_nest(value, message.named_tuple_value.values.add(key=field).value, encode_leaf)
    elif isinstance(node, (tuple, list)):
        values = message.tuple_value if isinstance(node, tuple) else message.list_value
        values.SetInParent()
        for value in node:
            encode_nest(value, values.values.add(), encode_leaf)
    else:
        encode_leaf(node, message)


def _check_specs(node: Any, path: tuple[str, ...]) -> None:
    """Refuses leaves that are not specs. A tuple without any spec, such as `(3,)`, is refused as a whole."""
    if isinstance(node, Mapping):
        for key in _sorted_keys(node):
            _check_specs(node[key], (*path, key))
    elif isinstance(node, (tuple, list)):
        leaves = [leaf for _, leaf in _leaves(node, ())]
        if leaves and not any(map(_is_spec, leaves)):
            _refuse_spec(path, node)
        for name, child in zip(getattr(node, "_fields", range(len(node))), node, strict=True):
            _check_specs(child, (*path, str(name)))
    elif not _is_spec(node):
        _refuse_spec(path, node)


def _is_spec(leaf: Any) -> bool:
    try:
        spec_from_leaf(leaf)
    except ValueError:
        return False
    return True


def _refuse_spec(path: tuple[str, ...], node: Any) -> NoReturn:
    leaf = next(leaf for _, leaf in _leaves(node, ()))
    is_array = hasattr(node, "shape") and hasattr(node, "dtype") and not isinstance(node, type)
    shape, dtype = (node.shape, node.dtype) if is_array else ((3,), "float32")
    raise ValueError(
        f"{'/'.join(path) or 'signature'}: expected something with shape and dtype, such as "
        f"TensorSpec({shape}, {dtype}).\nUnsupported signature spec: {leaf}"
    )


def _encode_leaf(leaf: Any, message: Any) -> None:
    spec = spec_from_leaf(leaf)
    bounded = isinstance(spec, BoundedTensorSpec)
    target = message.bounded_tensor_spec_value if bounded else message.tensor_spec_value
    if spec.name is not None:
        target.name = spec.name
    target.shape.SetInParent()  # The field must be present even if it is empty, which means a scalar.
    if spec.shape.rank is None:
        target.shape.unknown_rank = True
    else:
        for size in spec.shape:
            target.shape.dim.add().size = -1 if size is None else size
    target.dtype = dtypes.number_of(spec.dtype)
    if isinstance(spec, BoundedTensorSpec):
        tensor_proto.encode(spec.minimum, target.minimum)
        tensor_proto.encode(spec.maximum, target.maximum)


def _sorted_keys(node: Mapping[Any, Any]) -> list[str]:
    for key in node:
        if not isinstance(key, str):
            raise TypeError(f"The keys of a nest must be str, got {key!r} ({type(key).__name__}).")
    return sorted(node)


def parse(signature: bytes) -> Any:
    """Parses a serialized `tensorflow.StructuredValue`."""
    return _protos.message_class("tensorflow.StructuredValue").FromString(signature)


def decode(message: Any) -> Any:
    """Decodes the nest of specs in a message.

    Args:
      message: The `tensorflow.StructuredValue` to decode.

    Returns:
      The signature that was encoded, except that the keys of dicts are sorted. Its leaves are TensorFlow's specs if the
      program has imported TensorFlow, otherwise ours. None values are leaves.

    Raises:
      ValueError: The message does not contain a signature.
    """
    kind = message.WhichOneof("kind")
    if kind == "dict_value":
        fields = message.dict_value.fields
        return {key: decode(fields[key]) for key in sorted(fields)}
    if kind == "named_tuple_value":
        pairs = message.named_tuple_value.values
        cls = named_tuple(message.named_tuple_value.name, tuple(pair.key for pair in pairs))
        return cls(*(decode(pair.value) for pair in pairs))
    if kind == "tuple_value":
        return tuple(decode(value) for value in message.tuple_value.values)
    if kind == "list_value":
        return [decode(value) for value in message.list_value.values]
    if kind in ("tensor_spec_value", "bounded_tensor_spec_value"):
        return _decode_spec(getattr(message, kind), bounded=kind == "bounded_tensor_spec_value")
    if kind == "none_value":
        return None
    raise ValueError(f"Saw unsupported encoded subtree in signature: '{message}'")


def _decode_spec(message: Any, *, bounded: bool) -> Any:
    bounds = [tensor_proto.decode(bound) for bound in (message.minimum, message.maximum)] if bounded else []
    return make_spec(_dims(message), message.dtype, message.name or None, *bounds)


def make_spec(dims: list[int | None] | None, number: int, name: str | None, *bounds: Any) -> Any:
    """Creates one of TensorFlow's specs if the program has imported TensorFlow, otherwise one of ours.

    Args:
      dims: Sizes of the dimensions, None for each unknown size; or None if the rank is unknown.
      number: TensorFlow's number of the dtype.
      name: Name of the leaf itself; None if it has no name.
      *bounds: Minimum and maximum of a bounded spec; no arguments for a plain spec.
    """
    tensorflow: Any = sys.modules.get("tensorflow")
    cls: Any
    if hasattr(tensorflow, "TensorSpec") and hasattr(tensorflow, "dtypes"):
        cls = _tensorflow_bounded_spec() if bounds else tensorflow.TensorSpec
        return cls(dims, tensorflow.dtypes.as_dtype(number), *bounds, name=name)
    cls = BoundedTensorSpec if bounds else TensorSpec
    return cls(dims, dtypes.dtype_from_number(number), *bounds, name=name)


def _dims(message: Any) -> list[int | None] | None:
    if message.shape.unknown_rank:
        return None
    return [None if dim.size < 0 else dim.size for dim in message.shape.dim]


def _tensorflow_bounded_spec() -> Any:
    # TensorFlow has no public name for the class.
    return importlib.import_module("tensorflow.python.framework.tensor_spec").BoundedTensorSpec


@functools.lru_cache(maxsize=1024)
def named_tuple(name: str, fields: tuple[str, ...]) -> Any:
    """Returns the same class for the same name and fields, so that decoding twice gives the same type.

    Args:
      name: Name of the class.
      fields: Names of its fields.
    """
    made = namedtuple(name, fields)  # type: ignore[misc]

    def reduce(self: Any) -> tuple[Any, ...]:
        return _rebuild, (name, fields, tuple(self))

    # The class is not an attribute of any module, so pickling it by name would fail.
    made.__reduce__ = reduce  # type: ignore[method-assign]
    return made


def _rebuild(name: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return named_tuple(name, fields)(*values)


def flat_specs(signature: Any) -> list[FlatSpec] | None:
    """Flattens a signature into its leaves, in the order of the columns.

    Args:
      signature: Nest of specs, or its serialized bytes; None if there is no signature.

    Returns:
      For each leaf its name (the path joined by `/`, followed by the spec's own name if it has one), the number of its
      dtype, and its dimensions. None if there is no signature.

    Raises:
      ValueError: A leaf is not a spec.
      TypeError: A key of a mapping is not a str.
    """
    if isinstance(signature, bytes):
        signature = decode(parse(signature))
    if not _is_given(signature):
        return None
    return [_flat_spec(path, spec_from_leaf(leaf)) for path, leaf in _leaves(signature, ())]


def flatten(signature: Any) -> FlatSignature | None:
    """Serializes and flattens a signature; see `encode` and `flat_specs`. None if there is no signature.

    Args:
      signature: Nest of specs, or None.

    Raises:
      ValueError: A leaf is not a spec.
      TypeError: A key of a mapping is not a str.
    """
    structure, specs = encode(signature), flat_specs(signature)
    return None if structure is None or specs is None else (structure, specs)


def _leaves(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(node, Mapping):
        steps: Any = ((key, node[key]) for key in _sorted_keys(node))
    elif isinstance(node, tuple) and hasattr(node, "_fields"):
        steps = zip(node._fields, node, strict=True)
    elif isinstance(node, (tuple, list)):
        steps = ((str(position), value) for position, value in enumerate(node))
    else:
        yield path, node
        return
    for step, value in steps:
        yield from _leaves(value, (*path, step))


def _flat_spec(path: tuple[str, ...], spec: TensorSpec) -> FlatSpec:
    name = "/".join([*path, spec.name] if spec.name else path)
    dims = None if spec.shape.rank is None else [-1 if size is None else size for size in spec.shape]
    return name, dtypes.number_of(spec.dtype), dims
