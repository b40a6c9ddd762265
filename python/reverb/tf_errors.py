"""Calls from TensorFlow's graphs into Python, whose errors come out as the classes that the reference has."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

__all__ = ["call"]


def call(function: Callable[..., list[Any]], inputs: list[Any], dtypes: list[Any]) -> list[Any]:
    return tf.numpy_function(function, inputs, dtypes)
