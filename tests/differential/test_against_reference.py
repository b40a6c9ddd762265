"""Our behaviour equals the reference's: both sides run the same scenarios, and their traces are compared."""

import copy

import pytest
import scenarios
from both_sides import SIDES, answer_of
from comparison import differences

pytestmark = [pytest.mark.reference, pytest.mark.timeout(400)]

GROUPS = {
    "deterministic": scenarios.all_deterministic,
    "random": scenarios.all_random,
    "round trips": lambda: [scenarios.round_trips()],
    "errors": lambda: [scenarios.errors()],
}


@pytest.fixture(scope="module")
def traces():
    """For each group: scenarios, the reference's traces, and our traces."""
    wanted = {name: make() for name, make in GROUPS.items()}
    flat = [scenario for group in wanted.values() for scenario in group]
    expected, actual = (iter(answer_of(side, "driver.py", flat)) for side in SIDES)
    return {name: [(scenario, next(expected), next(actual)) for scenario in group] for name, group in wanted.items()}


@pytest.mark.parametrize("group", GROUPS)
def test_traces_agree(traces, group):
    found = [
        f"scenario {index} {scenario['tables']}: {difference}"
        for index, (scenario, expected, actual) in enumerate(traces[group])
        for difference in differences(scenario, expected, actual)[:1]
    ]
    assert not found, f"{len(found)} of {len(traces[group])} scenarios\n" + "\n".join(found[:20])


def test_scenarios_do_not_just_wait(traces):
    """The comparison means little if most ops were refused by the limiter."""
    entries = [entry for _, expected, _ in traces["deterministic"] for entry in expected]
    assert entries.count("inserted") > 1000
    assert sum(isinstance(entry, list) and bool(entry) and isinstance(entry[0], dict) for entry in entries) > 800
    assert "would wait" in entries


def wrong(trace, change):
    """A copy of a trace with one entry changed."""
    trace = copy.deepcopy(trace)
    for entry in reversed(trace):
        if change(entry):
            return trace
    raise AssertionError("no entry to change")


def change_value(entry):
    if isinstance(entry, list) and entry and isinstance(entry[0], dict):
        entry[0]["value"] += 1
        return True
    return False


def change_count(entry):
    if isinstance(entry, dict) and "num_unique_samples" in entry:
        entry["num_unique_samples"] += 1
        return True
    return False


def change_probe(entry):
    if isinstance(entry, list) and entry and isinstance(entry[0], list) and len(entry[0]) == 20:
        entry[1][7] = not entry[1][7]
        return True
    return False


@pytest.mark.parametrize("change", [change_value, change_count, change_probe])
def test_wrong_trace_is_noticed(traces, change):
    scenario, expected, _ = traces["deterministic"][0]
    assert not differences(scenario, expected, expected)
    assert differences(scenario, expected, wrong(expected, change))


def test_wrong_probability_is_noticed(traces):
    scenario, expected, _ = traces["random"][-1]
    assert not differences(scenario, expected, expected)
    damaged = copy.deepcopy(expected)
    for entry in damaged:
        if isinstance(entry, list) and entry and isinstance(entry[0], dict):
            for one in entry:
                one["probability"] *= 1.01
    assert differences(scenario, expected, damaged)


def test_wrong_counts_are_noticed(traces):
    scenario, expected, _ = traces["random"][0]
    damaged = copy.deepcopy(expected)
    draws = next(entry for entry in damaged if isinstance(entry, list) and len(entry) == 400)
    often, seldom = draws[0]["value"], next(draw["value"] for draw in draws if draw["value"] != draws[0]["value"])
    instead = next(draw for draw in draws if draw["value"] == often)
    found = [index for index, draw in enumerate(draws) if draw["value"] == seldom]
    # One of its draws stays, so that the items and their info are the same.
    for index in found[1:]:
        draws[index] = instead
    assert differences(scenario, expected, damaged)


def test_wrong_error_is_noticed(traces):
    [(scenario, expected, _)] = traces["errors"]
    damaged = copy.deepcopy(expected)
    damaged[0]["error"] = ["KeyError", "LookupError", "Exception"]
    assert differences(scenario, expected, damaged)
