"""The project's protobuf messages, in a separate descriptor pool.

TensorFlow and dm-reverb register files with the same names in protobuf's default pool, so our files cannot be in that
pool. There is no generated code because it would tie the package to one version of protobuf: messages are made at run
time from descriptors that the build embeds. They are real messages, not plain classes, because programs serialize them.

Pickled messages name this module, so it keeps its path.
"""

import functools
from typing import TYPE_CHECKING, Any

from reverb import _binding

if TYPE_CHECKING:
    from google.protobuf import descriptor_pool

# Maps each proto file to the module in which users find its messages.
_MODULES = {
    "reverb/cc/schema.proto": "reverb.cc.schema_pb2",
    "reverb/cc/patterns.proto": "reverb.cc.patterns_pb2",
    "reverb/cc/checkpointing/checkpoint.proto": "reverb.cc.checkpointing.checkpoint_pb2",
    "reverb/server_executable/reverb_config.proto": "reverb.server_executable.reverb_config_pb2",
}


@functools.cache
def _pool() -> "descriptor_pool.DescriptorPool":
    # Importing protobuf takes longer than importing all of this package, and a program that only writes never needs it.
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(_binding.descriptor_set())
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


@functools.cache
def message_class(full_name: str) -> Any:
    """The class of a message.

    Args:
      full_name: Name of the message including its package, such as `deepmind.reverb.TableInfo`.

    Returns:
      The only class for this message in the process. Nested messages are attributes of the class.

    Raises:
      KeyError: There is no such message.
    """
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(full_name))


def module_contents(file_name: str) -> dict[str, Any]:
    """The names that a module generated from a proto file would define.

    Args:
      file_name: Path of the proto file, such as `reverb/cc/schema.proto`.

    Returns:
      The file's top-level message classes and enum wrappers by name, and its `DESCRIPTOR`.

    Raises:
      KeyError: There is no such file.
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
    # Protobuf's default implementation looks nested messages up in the default pool, which does not contain ours.
    return _from_bytes, (message.DESCRIPTOR.full_name, message.SerializeToString())


def _from_bytes(full_name: str, data: bytes) -> Any:
    return message_class(full_name).FromString(data)
