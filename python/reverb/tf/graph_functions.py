"""Functions for TensorFlow's graphs that are made without `tf.function`, which initialises TensorFlow's devices."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


class GraphFunction:
    """A function that operations of a graph can call by its name.

    Args:
      name: Name of the function, which must be unique in the process.
      function: Function from tensors to a tensor or a list of tensors. It captures nothing.
      specs: Specs of the tensors that the function takes.
    """

    def __init__(self, name: str, function: Callable[..., Any], specs: Sequence[Any]) -> None:
        self.name = name
        # Keeps alive the Python functions that the operations call.
        self._graph = tf.Graph()
        with self._graph.as_default():
            arguments = [tf.compat.v1.placeholder(spec.dtype, spec.shape) for spec in specs]
            results = function(*arguments)
        self._has_it: weakref.WeakSet[Any] = weakref.WeakSet()
        self._library = tf.compat.v1.GraphDef(versions=self._graph.as_graph_def().versions)
        self._define(arguments, results if isinstance(results, list) else [results])

    def add_to(self, graph: Any) -> None:
        """Adds the function to the library of a graph. A second call does nothing."""
        if graph not in self._has_it:
            self._has_it.add(graph)
            with graph.as_default():
                tf.graph_util.import_graph_def(self._library, name="")

    def _define(self, arguments: list[Any], results: list[Any]) -> None:
        """Writes the operations of the graph as a function, whose inputs name the outputs of operations."""
        definition = self._library.library.function.add()
        signature = definition.signature
        signature.name = self.name
        # All of them call Python, which TensorFlow must neither skip nor repeat.
        signature.is_stateful = True
        places = {}
        for index, argument in enumerate(arguments):
            signature.input_arg.add(name=f"input_{index}", type=argument.dtype.as_datatype_enum)
            places[argument.name] = f"input_{index}"
        inputs = {argument.op.name for argument in arguments}
        for operation in self._graph.get_operations():
            places.update(_outputs(operation) if operation.name not in inputs else {})
        for operation in self._graph.get_operations():
            if operation.name not in inputs:
                node = definition.node_def.add()
                node.CopyFrom(operation.node_def)
                controls = [f"^{before.name}" for before in operation.control_inputs]
                node.input[:] = [*(places[tensor.name] for tensor in operation.inputs), *controls]
        for index, result in enumerate(results):
            signature.output_arg.add(name=f"output_{index}", type=result.dtype.as_datatype_enum)
            definition.ret[f"output_{index}"] = places[result.name]


def _outputs(operation: Any) -> dict[str, str]:
    """Maps the name of each output to its name in a function: operation, argument, place in the argument."""
    places: list[str] = []
    for argument in operation.op_def.output_arg:
        if argument.type_list_attr:
            count = len(operation.get_attr(argument.type_list_attr))
        else:
            count = operation.get_attr(argument.number_attr) if argument.number_attr else 1
        places += [f"{operation.name}:{argument.name}:{index}" for index in range(count)]
    return {tensor.name: place for tensor, place in zip(operation.outputs, places, strict=True)}
