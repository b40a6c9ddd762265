"""The Q-network in NumPy, so that actors need no JAX. The learner uses the same layout."""

from __future__ import annotations

import itertools
from typing import TypeAlias

import numpy as np

Layers: TypeAlias = "list[tuple[np.ndarray, np.ndarray]]"


def init(layer_sizes: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Makes a flat float32 vector of He-initialised weights and zero biases, layer by layer."""
    parts = []
    for rows, columns in itertools.pairwise(layer_sizes):
        parts.append(rng.normal(0.0, np.sqrt(2.0 / rows), rows * columns))
        parts.append(np.zeros(columns))
    return np.concatenate(parts).astype(np.float32)


def split(values: np.ndarray, layer_sizes: tuple[int, ...]) -> Layers:
    """Splits a flat vector into `(weights, bias)` per layer. Works on JAX arrays too."""
    layers, offset = [], 0
    for rows, columns in itertools.pairwise(layer_sizes):
        weights = values[offset : offset + rows * columns].reshape(rows, columns)
        offset += rows * columns
        layers.append((weights, values[offset : offset + columns]))
        offset += columns
    return layers


def action_values(layers: Layers, observations: np.ndarray) -> np.ndarray:
    """Q-values `[..., actions]` of observations `[..., 4]`."""
    hidden = observations
    for weights, bias in layers[:-1]:
        hidden = np.maximum(hidden @ weights + bias, 0.0)
    weights, bias = layers[-1]
    return hidden @ weights + bias
