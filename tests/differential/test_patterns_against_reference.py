"""Configs of patterns have the same bytes here and in the reference."""

import itertools

import pytest
from both_sides import SIDES, answer_of

pytestmark = [pytest.mark.reference, pytest.mark.timeout(200)]

# The slice lengths are multiples of the step: for others the reference infers wrong lengths.
PATTERNS = (
    "s['a'][-1]",
    "s['b'][:-2]",
    "[s['a'][-3:], s['b'][-3:-1]]",
    "(s['d'][0][-4::2],)",
    "{'x': s['c'][-1], 'n': {'b': s['a'][np.int64(-2):0], 'a': [s['a'][-9::3]]}, 'e': ()}",
    "__import__('collections').namedtuple('Pair', 'second first')(s['a'][-1], {'k': s['b'][-2:]})",
    "[]",
    "{'x': s['a']}",
    "s['a']['x']",
    "{'x': None}",
)
LEFT = ("C.step_index()", "C.steps_since_applied()", "C.data(step)['b']")
COMPARISONS = ("{} == 3", "{} != 3", "{} > 3", "{} >= 3", "{} < 3", "{} <= 3", "3 == {}", "3 > {}", "{} % 4 == 1")
COMPARISONS += ("{} % 4 != 0", "{} == -1", "{} >= 2**31", "{} == 1.5", "{} == None")
PRIORITIES = ("None", "sw.constant_priority_fn(2)", "sw.td_error(0.9, step, lambda s: s['a'])")


def all_cases():
    cases = [{"pattern": pattern, "conditions": "[]", "priority": p} for pattern in PATTERNS for p in PRIORITIES]
    conditions = [text.format(left) for left, text in itertools.product(LEFT, COMPARISONS)]
    conditions += ["C.is_end_episode()", "sw.ConditionProto(buffer_length=True, ge=3)", "C.step_index()", "True"]
    for condition in conditions:
        cases.append({"pattern": "s['a'][-1]", "conditions": f"[C.is_end_episode(), {condition}]", "priority": "None"})
    return cases


def results_of(side, cases):
    return answer_of(side, "pattern_driver.py", cases)


def test_configs_are_the_same_bytes():
    cases = all_cases()
    theirs, ours = (results_of(side, cases) for side in SIDES)
    wrong = [(case, their, our) for case, their, our in zip(cases, theirs, ours, strict=True) if their != our]
    assert not wrong, f"{len(wrong)} of {len(cases)}; {wrong[0]}"
    assert sum("bytes" in result for result in ours) > 40
    assert sum("error" in result for result in ours) > 10


def test_configs_of_one_side_parse_on_the_other():
    ours = [result for result in results_of("ours", all_cases()) if "bytes" in result]
    cases = [{"bytes": result["bytes"]} for result in ours]
    assert results_of("reference", cases) == results_of("ours", cases) == ours
