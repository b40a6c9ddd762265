"""Conditions for applying a pattern: turns expressions such as `Condition.step_index() % 4 == 0` into messages.

Pickled conditions name this module, so it keeps its path.
"""

import operator
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from reverb.cc import patterns_pb2
from reverb.data import checks

if TYPE_CHECKING:
    ConditionProto: TypeAlias = Any
else:
    ConditionProto = patterns_pb2.Condition


def as_int32(what: str, value: object) -> int:
    """Converts a Python or numpy integer that must fit the 32-bit fields of the messages.

    Raises:
      TypeError: The value is not an integer.
      ValueError: The value does not fit into 32 bits.
    """
    try:
        number = operator.index(bool(value) if isinstance(value, np.bool_) else value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what} must be an int, got {value!r} ({type(value).__name__}).") from None
    if number not in checks.INT32:
        raise ValueError(f"{what} must fit into 32 bits, got {number}.")
    return number


class ConditionBuilder:
    """The left side of a condition. Comparing it with an int creates the condition.

    `==`, `!=`, `>`, `>=`, `<` and `<=` compare the value itself. `% m`, followed by `==` or `!=`, compares the
    remainder.

    Args:
      left: Name and value of the message field that identifies the left side.
      mod: Divisor for comparing remainders; None compares the value itself.
    """

    __slots__ = ("_left", "_mod")

    # Without this, a numpy integer on the left would treat the builder as an array and compare itself with that.
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, left: tuple[str, Any], mod: int | None = None) -> None:
        self._left = left
        self._mod = mod

    def __mod__(self, mod: object) -> "ConditionBuilder":
        if self._mod is not None:
            raise TypeError(f"A condition takes one `%`, got a second one in `{self!r} % {mod!r}`.")
        number = as_int32("The right side of `%`", mod)
        if number < 1:
            raise ValueError(f"The right side of `%` must be at least 1, got {number}.")
        return ConditionBuilder(self._left, number)

    def __eq__(self, value: object) -> Any:
        return self._equal("==", value, inverse=False)

    def __ne__(self, value: object) -> Any:
        return self._equal("!=", value, inverse=True)

    def __ge__(self, value: object) -> Any:
        return self._at_least(">=", value, 0, inverse=False)

    def __gt__(self, value: object) -> Any:
        return self._at_least(">", value, 1, inverse=False)

    def __lt__(self, value: object) -> Any:
        return self._at_least("<", value, 0, inverse=True)

    def __le__(self, value: object) -> Any:
        return self._at_least("<=", value, 1, inverse=True)

    def _equal(self, sign: str, value: object, *, inverse: bool) -> Any:
        number = as_int32(f"The right side of `{self!r} {sign}`", value)
        if self._mod is None:
            return self._finish(inverse, eq=number)
        if number < 0:
            raise ValueError(f"The right side of `{self!r} {sign}` must be at least 0, got {number}.")
        return self._finish(inverse, mod_eq=patterns_pb2.Condition.ModuloEq(mod=self._mod, eq=number))

    def _at_least(self, sign: str, value: object, more: int, *, inverse: bool) -> Any:
        if self._mod is not None:
            raise TypeError(f"After `%` a condition takes `==` or `!=`, got `{self!r} {sign} {value!r}`.")
        number = as_int32(f"The right side of `{self!r} {sign}`", value)
        # The messages can express only `>=`.
        return self._finish(inverse, ge=as_int32(f"The right side of `{self!r} {sign}`, plus 1,", number + more))

    def _finish(self, inverse: bool, **comparison: Any) -> Any:
        name, value = self._left
        message = patterns_pb2.Condition(**{name: value}, **comparison)
        if inverse:
            message.inverse = True
        return message

    def __bool__(self) -> bool:
        raise TypeError(f"`{self!r}` is not a condition yet: compare it with an int.")

    def __repr__(self) -> str:
        name, value = self._left
        left = f"data[{value}]" if name == "flat_source_index" else name
        return left if self._mod is None else f"{left} % {self._mod}"


class Condition:
    """Building blocks for the conditions of a config. All conditions of a config must hold."""

    @staticmethod
    def step_index() -> ConditionBuilder:
        """The index of the newest step within its episode, starting from 0."""
        return ConditionBuilder(("step_index", True))

    @staticmethod
    def steps_since_applied() -> ConditionBuilder:
        """Number of steps since the config last created an item, or since the writer started, including the newest."""
        return ConditionBuilder(("steps_since_applied", True))

    @staticmethod
    def is_end_episode() -> Any:
        """A complete condition, which needs no comparison: the episode is ending."""
        return patterns_pb2.Condition(is_end_episode=True, eq=1)

    @staticmethod
    def data(step_structure: Any) -> Any:
        """The value of a leaf in the newest step, which must be a single integer or bool.

        A condition on a leaf that is absent from the newest step does not hold.

        Args:
          step_structure: Nest with the structure of a step; the values of its leaves are ignored.

        Returns:
          The same nest with a builder for each leaf.
        """
        import tree

        count = len(tree.flatten(step_structure))
        builders = [ConditionBuilder(("flat_source_index", index)) for index in range(count)]
        return tree.unflatten_as(step_structure, builders)


def _refuse_truth(self: Any) -> NoReturn:
    raise TypeError(
        "A condition has no truth value until a writer evaluates it. Instead of `0 <= x < 5`, `and`, `or` or "
        "`not`, give the config several conditions; all of them must hold."
    )


# Without this, `0 <= x < 5` would silently mean `x < 5`: Python reads it as `0 <= x and x < 5`, and `0 <= x` is truthy.
setattr(patterns_pb2.Condition, "__bool__", _refuse_truth)  # noqa: B010  Type checkers do not see a class there.
