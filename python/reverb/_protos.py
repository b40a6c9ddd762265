"""The project's protobuf messages, in a descriptor pool of their own.

TensorFlow and the reference register files of the same names in protobuf's default pool, so ours cannot live there. No
code is generated, for that would tie the package to one version of protobuf.
"""

import functools
from typing import TYPE_CHECKING, Any

from reverb import pybind

if TYPE_CHECKING:
    from google.protobuf import descriptor_pool

__all__ = ["message_class", "module_contents"]

# Where users find the messages of a file.
_MODULES = {
    "reverb/cc/schema.proto": "reverb.cc.schema_pb2",
    "reverb/cc/patterns.proto": "reverb.cc.patterns_pb2",
    "reverb/cc/checkpointing/checkpoint.proto": "reverb.cc.checkpointing.checkpoint_pb2",
    "reverb/server_executable/reverb_config.proto": "reverb.server_executable.reverb_config_pb2",
}


@functools.cache
def _pool() -> "descriptor_pool.DescriptorPool":
    # Protobuf takes longer to import than all of this package, and a program that only writes never needs it.
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(pybind.descriptor_set())
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


@functools.cache
def message_class(full_name: str) -> Any:
    """The class of a message.

    Args:
      full_name: With its package, such as `deepmind.reverb.TableInfo`.

    Returns:
      The one class that this process has for the message. Nested messages are its attributes.

    Raises:
      KeyError: No such message.
    """
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(full_name))


def module_contents(file_name: str) -> dict[str, Any]:
    """What a module generated from a file would define.

    Args:
      file_name: Such as `reverb/cc/schema.proto`.

    Returns:
      The file's top-level message classes and enum wrappers by name, and its `DESCRIPTOR`.

    Raises:
      KeyError: No such file.
    """
    file = _pool().FindFileByName(file_name)
    contents: dict[str, Any] = {"DESCRIPTOR": file}
    for name, message in file.message_types_by_name.items():
        contents[name] = _place(message_class(message.full_name), _MODULES[file_name], name)
    return contents


def _place(cls: Any, module: str, qualified_name: str) -> Any:
    cls.__module__ = module
    cls.__qualname__ = qualified_name
    cls.__reduce__ = _reduce
    for nested in cls.DESCRIPTOR.nested_types:
        if not nested.GetOptions().map_entry:
            _place(getattr(cls, nested.name), module, f"{qualified_name}.{nested.name}")
    return cls


def _reduce(message: Any) -> tuple[Any, ...]:
    # Protobuf's own way looks nested messages up in the default pool, where ours are not.
    return _from_bytes, (message.DESCRIPTOR.full_name, message.SerializeToString())


def _from_bytes(full_name: str, data: bytes) -> Any:
    return message_class(full_name).FromString(data)
