"""Compares a trace of ours with one of the reference."""

import math

# Texts that differ on purpose, since they say more than the reference's; and one that names tables in any order.
OWN_TEXTS = {"sample", "insert", "reset", "mutate", "insert nan", "bad key", "None leaf", "unpack"}


def differences(scenario, expected, actual):
    """Describes each difference in a sentence. The result is empty if the traces agree."""
    if not len(scenario["ops"]) == len(expected) == len(actual):
        return [f"{len(scenario['ops'])} ops, {len(expected)} and {len(actual)} entries"]
    found = []
    is_random = any(table.get("sampler", ["fifo"])[0] in ("uniform", "prioritized") for table in scenario["tables"])
    for index, (op, theirs, ours) in enumerate(zip(scenario["ops"], expected, actual, strict=True)):
        agree = agree_in_distribution if is_random and op["op"] == "sample" else agrees
        if not agree(op, theirs, ours):
            found.append(f"op {index} {op}: expected {theirs}, got {ours}")
    return found


def agrees(op, theirs, ours):
    if is_error(theirs) or is_error(ours):
        return is_error(theirs) and is_error(ours) and error_agrees(op, theirs, ours)
    return same(theirs, ours)


def is_error(entry):
    return isinstance(entry, dict) and "error" in entry


def error_agrees(op, theirs, ours):
    """Whether errors agree. A program that catches the reference's class must catch ours.

    Lines of our own may come before the reference's text.
    """
    if theirs["error"][0] not in ours["error"]:
        return False
    return op.get("call") in OWN_TEXTS or f"\n{ours['text']}".endswith(f"\n{theirs['text']}")


def same(theirs, ours):
    """Whether values are equal, except for the last bits of floats."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return theirs.keys() == ours.keys() and all(same(theirs[key], ours[key]) for key in theirs)
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(theirs) == len(ours) and all(map(same, theirs, ours))
    if isinstance(theirs, float) and isinstance(ours, float):
        return math.isclose(theirs, ours, rel_tol=1e-9)
    return type(theirs) is type(ours) and theirs == ours


def agree_in_distribution(op, theirs, ours):
    """Whether items, probabilities, priorities and sizes agree, and each side's counts fit its probabilities."""
    if is_error(theirs) or is_error(ours) or len(theirs) != len(ours):
        return False
    return same(static_of(theirs), static_of(ours)) and counts_fit(theirs) and counts_fit(ours)


def static_of(draws):
    """Returns what each drawn item has, by value, without chance; and all counts of draws together."""
    fields = ("probability", "table_size", "priority", "same_key", "shapes")
    items = {str(draw["value"]): {field: draw[field] for field in fields} for draw in draws}
    return {"items": items, "seen": sorted(items)}


def counts_fit(draws):
    """Whether all counts are within six standard deviations. In 400 draws chance exceeds that once in 10⁷ items."""
    for value in {draw["value"] for draw in draws}:
        own = [draw for draw in draws if draw["value"] == value]
        probability = own[0]["probability"]
        deviation = math.sqrt(len(draws) * probability * (1 - probability))
        if abs(len(own) - len(draws) * probability) > 6 * deviation + 1:
            return False
    return True
