"""Answers with the public names of the `reverb` of whichever interpreter runs this file, as docs/migrate.md lists them.

Each name stands without `reverb.` and with its arguments, such as `Client.sample(table, num_samples=1)`.
"""

import functools
import importlib
import inspect
import json
import os
import pkgutil
import re
import sys
import types
import typing

# Those that users import, the usual place of a name first.
MODULES = (
    "reverb",
    "reverb.selectors",
    "reverb.rate_limiters",
    "reverb.structured",
    "reverb.checkpointers",
    "reverb.errors",
    "reverb.replay_sample",
    "reverb.reverb_types",
    "reverb.client",
    "reverb.server",
    "reverb.trajectory_writer",
    "reverb.pattern_dataset",
    "reverb.server_executable.server_main",
    "reverb.server_executable.server_from_proto",
    "reverb.pybind",
)
# Arguments of constructors that only the package itself calls.
INTERNAL = {"internal_writer", "cpp_writer"}


def modules_of(package):
    """The modules of a package that have neither a private name nor that of a shared library."""
    found = (module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))
    return sorted(name for name in found if not name.rpartition(".")[2].startswith(("_", "lib")))


def names_of(modules):
    """The public names of the modules. A second place of a class stands without arguments and methods."""
    seen = set()
    for module_name in modules:
        module = module_of(module_name)
        for name in sorted(vars(module)):
            thing = getattr(module, name)
            if name.startswith("_") or not is_own(name, thing):
                continue
            path = f"{module_name}.{name}".partition(".")[2]
            if id(thing) in seen:
                yield path
                continue
            seen.add(id(thing))
            yield path + (arguments_of(thing) or "")
            yield from (f"{path}.{member}" for member in members_of(thing))


def module_of(name):
    """A module by the name that users write, which may be an attribute of the package instead of a file."""
    package, _, attribute = name.rpartition(".")
    return (
        getattr(module_of(package), attribute, None) or importlib.import_module(name) if package else __import__(name)
    )


def is_own(name, thing):
    """Whether the package defines the name, rather than importing it from elsewhere."""
    if isinstance(thing, types.ModuleType) or getattr(typing, name, None) is thing:
        return False
    of = getattr(thing, "__module__", None) or ""
    return of.startswith("reverb") or isinstance(thing, functools.partial) or type(thing).__module__ == "typing"


def members_of(thing):
    if not inspect.isclass(thing) or hasattr(thing, "DESCRIPTOR"):
        return
    for name in sorted(dir(thing)):
        owner = next((cls for cls in thing.__mro__ if name in vars(cls)), object)
        if name.startswith("_") or not owner.__module__.startswith("reverb"):
            continue
        is_call = callable(getattr(thing, name)) and not isinstance(vars(owner)[name], property)
        yield name + ((arguments_of(getattr(thing, name)) or "()") if is_call else "")


def arguments_of(thing):
    """The arguments of a call in parentheses, or None where there are none to give."""
    if hasattr(thing, "DESCRIPTOR") or not callable(thing) or type(thing).__module__ == "typing":
        return None
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return None
    doc = (thing.__init__ if inspect.isclass(thing) else thing).__doc__ or ""
    if isinstance(thing, functools.partial):
        return "()"
    if (written := re.match(r"\w+\((.*)\) -> ", doc)) is not None:
        return f"({', '.join(bound_arguments(written[1]))})"
    try:
        parameters = list(inspect.signature(thing).parameters.values())
    except (TypeError, ValueError):
        return None
    if any(parameter.name in INTERNAL for parameter in parameters):
        return None
    return f"({', '.join(map(shown, (one for one in parameters if one.name != 'self')))})"


def bound_arguments(written):
    """The arguments in the signature that pybind11 writes at the top of a docstring."""
    parts = re.sub(r"\[[^\[\]]*(\[[^\[\]]*(\[[^\[\]]*\])*[^\[\]]*\])*[^\[\]]*\]", "", written).split(", ")
    for part in parts:
        name, _, kind = part.partition(": ")
        if name != "self":
            default = kind.partition(" = ")[2]
            yield f"{name}={default}" if default else name


def shown(parameter):
    kinds = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
    name = kinds.get(parameter.kind, "") + parameter.name
    if parameter.default is parameter.empty:
        return name
    simple = parameter.default is None or isinstance(parameter.default, (bool, int, float, str, tuple, list))
    return f"{name}={parameter.default!r}" if simple else f"{name}=..."


def main():
    # The logs must not mix with the answer.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import reverb

    json.dump({"modules": modules_of(reverb), "names": list(names_of(MODULES))}, out)
    out.close()


if __name__ == "__main__":
    sys.exit(main())
