"""A Q-network of one hidden layer in NumPy, its gradient, and Adam."""

from __future__ import annotations

import itertools
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

import config as cfg

Parameters: TypeAlias = dict[str, NDArray[Any]]


def init(config: cfg.Config) -> Parameters:
    """Makes He-initialised weights and zero biases."""
    rng, sizes = np.random.default_rng(config.seed), (cfg.OBSERVATION_SIZE, config.hidden_size, cfg.NUM_ACTIONS)
    parameters: Parameters = {}
    for layer, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        parameters[f"w{layer}"] = rng.normal(0.0, np.sqrt(2.0 / rows), (rows, columns)).astype(np.float32)
        parameters[f"b{layer}"] = np.zeros(columns, np.float32)
    return parameters


def action_values(parameters: Parameters, observations: NDArray[Any]) -> NDArray[Any]:
    """Q-values `[..., actions]` of observations `[..., 4]`."""
    return _hidden(parameters, observations) @ parameters["w1"] + parameters["b1"]


def _hidden(parameters: Parameters, observations: NDArray[Any]) -> NDArray[Any]:
    return np.maximum(observations @ parameters["w0"] + parameters["b0"], 0.0)


def targets(parameters: Parameters, target: Parameters, rows: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Double DQN: the online network chooses the action after the transition, and the target network evaluates it."""
    choice = action_values(parameters, rows["next_observation"]).argmax(axis=-1)
    judged = action_values(target, rows["next_observation"])[np.arange(len(choice)), choice]
    return rows["reward"] + rows["discount"] * judged


def td_errors(parameters: Parameters, target: Parameters, rows: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """The n-step TD errors of transitions."""
    taken = action_values(parameters, rows["observation"])[np.arange(len(rows["action"])), rows["action"]]
    return targets(parameters, target, rows) - taken


class Learner:
    """The online network, its target, and Adam's moments.

    Args:
      config: Configuration of the run.
    """

    def __init__(self, config: cfg.Config):
        self.parameters = init(config)
        self.target = dict(self.parameters)
        self._step_size, self._count = config.learning_rate, 0
        self._moments = {name: (np.zeros_like(value), np.zeros_like(value)) for name, value in self.parameters.items()}

    def update(self, rows: dict[str, NDArray[Any]], weights: NDArray[Any]) -> NDArray[Any]:
        """Makes one step of Adam on the weighted Huber loss. Returns the absolute TD errors before it."""
        errors = td_errors(self.parameters, self.target, rows)
        # The gradient of the loss by the Q-values.
        output = np.zeros((len(errors), cfg.NUM_ACTIONS), np.float32)
        output[np.arange(len(errors)), rows["action"]] = -weights * np.clip(errors, -1.0, 1.0) / len(errors)
        hidden = _hidden(self.parameters, rows["observation"])
        inner = (output @ self.parameters["w1"].T) * (hidden > 0)
        gradients = {
            "w0": rows["observation"].T @ inner,
            "b0": inner.sum(axis=0),
            "w1": hidden.T @ output,
            "b1": output.sum(axis=0),
        }
        self._count += 1
        for name, gradient in gradients.items():
            first, second = self._moments[name]
            first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
            self._moments[name] = first, second
            size = np.sqrt(second / (1 - 0.999**self._count)) + 1e-8
            step = self._step_size * first / (1 - 0.9**self._count) / size
            self.parameters = {**self.parameters, name: self.parameters[name] - step.astype(np.float32)}
        return np.abs(errors)
