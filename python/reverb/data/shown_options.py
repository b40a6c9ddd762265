"""Options that callers give by name, in the signature and the help of what takes them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

_Shown = TypeVar("_Shown", bound=Callable[..., Any])


def shows_options(options: Any, heading: str) -> Callable[[_Shown], _Shown]:
    """Makes a decorator for a function, or a class, that takes the fields of a dataclass by name.

    It shows each option in the signature and, with its description, in the help. Type checkers read the same from a
    TypedDict of the options.

    Args:
      options: Dataclass whose docstring describes its fields under `Attributes:`.
      heading: Heading of the descriptions.
    """

    def show(shown: _Shown) -> _Shown:
        # Of a class, its constructor.
        function: Any = vars(shown)["__init__"] if isinstance(shown, type) else shown
        signature = inspect.signature(function)
        named = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        function.__signature__ = signature.replace(parameters=[*named, *map(_parameter, dataclasses.fields(options))])
        descriptions = inspect.getdoc(options)
        # `python -OO` drops both.
        if descriptions and shown.__doc__:
            section = descriptions.partition("Attributes:\n")[2].partition("\n\n")[0]
            shown.__doc__ = f"{inspect.cleandoc(shown.__doc__)}\n\n{heading}:\n{section}\n"
        return shown

    return show


def _parameter(field: dataclasses.Field[Any]) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=field.type)
