"""Makes configs of patterns with the `reverb` of whichever interpreter runs this file, and prints what they are.

    python pattern_driver.py < cases.json > results.json

A case is `{"pattern": ..., "conditions": ..., "priority": ...}` of Python expressions, in which `s` is a reference step
and `C` the conditions, or `{"bytes": ...}` with a serialised config in hex.
"""

import json
import os
import sys

import numpy as np

COLUMNS = {"a": ((), "float32"), "b": ((3, 3), "int64"), "c": ((None, 2), "uint8"), "d": ((), "bool")}


def step_spec():
    """The spec of the steps of all cases: a dict of three columns and a tuple of one."""
    try:
        from reverb.tensor_spec import TensorSpec
    except ImportError:
        from tensorflow import TensorSpec
    specs = {name: TensorSpec(shape, np.dtype(dtype)) for name, (shape, dtype) in COLUMNS.items()}
    return {**specs, "d": (specs["d"],)}


def make(sw, case):
    if "bytes" in case:
        return sw.Config.FromString(bytes.fromhex(case["bytes"]))
    names = {"s": sw.create_reference_step(step_spec()), "C": sw.Condition, "sw": sw, "step": step_spec(), "np": np}
    pattern, conditions, priority = (
        eval(case[part], names)
        for part in ("pattern", "conditions", "priority")  # These expressions come only from this test.
    )
    return sw.create_config(pattern, "table", conditions, priority)


def signature_of(sw, config):
    import tree

    specs = tree.flatten(sw.infer_signature([config], step_spec()))
    return [
        [spec.name, np.dtype(getattr(spec.dtype, "as_numpy_dtype", spec.dtype)).name, list(spec.shape)]
        for spec in specs
    ]


def describe(sw, case):
    try:
        config = make(sw, case)
    except Exception as error:
        return {"error": type(error).__name__}
    return {
        "bytes": config.SerializeToString(deterministic=True).hex(),
        "pattern": str(type(sw.unpack_pattern(config)).__name__),
        "nodes": [str(node) for node in config.flat],
        "signature": signature_of(sw, config),
    }


def main():
    # The output of libraries must not mix with the result.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from reverb import structured_writer

    json.dump([describe(structured_writer, case) for case in json.load(sys.stdin)], out)


if __name__ == "__main__":
    main()
