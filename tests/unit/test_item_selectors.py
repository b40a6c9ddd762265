import gc
import math
import pickle

import pytest

import reverb
from reverb import item_selectors, rate_limiters, reverb_types

SELECTORS = [
    (item_selectors.Fifo, "FifoSelector", ("fifo", 0.0)),
    (item_selectors.Lifo, "LifoSelector", ("lifo", 0.0)),
    (item_selectors.Uniform, "UniformSelector", ("uniform", 0.0)),
    (lambda: item_selectors.Prioritized(0.8), "PrioritizedSelector(priority_exponent=0.8)", ("prioritized", 0.8)),
    (lambda: item_selectors.Prioritized(1), "PrioritizedSelector(priority_exponent=1)", ("prioritized", 1.0)),
    (
        lambda: item_selectors.Prioritized(0.123456789),
        "PrioritizedSelector(priority_exponent=0.123457)",
        ("prioritized", 0.123456789),
    ),
    (item_selectors.MinHeap, "HeapSelector(sign=1)", ("min_heap", 0.0)),
    (item_selectors.MaxHeap, "HeapSelector(sign=-1)", ("max_heap", 0.0)),
]


@pytest.mark.parametrize(("make", "text", "options"), SELECTORS)
def test_selector_is_its_kind_and_options(make, text, options):
    selector = make()
    assert repr(selector) == text
    assert selector.options() == options
    assert selector == make()
    assert hash(selector) == hash(make())
    assert pickle.loads(pickle.dumps(selector)) == selector
    assert isinstance(selector, reverb_types.SelectorType)


def test_selectors_of_different_options_differ():
    different = [make() for make, _, _ in SELECTORS]
    for i, selector in enumerate(different):
        assert [selector == other for other in different] == [i == j for j in range(len(different))]
    assert item_selectors.Fifo() != "FifoSelector"


@pytest.mark.parametrize(("make", "text", "options"), SELECTORS)
def test_selector_survives_its_message(make, text, options):
    message = item_selectors.selector_to_proto(make())
    assert message.is_deterministic == (options[0] not in ("uniform", "prioritized"))
    again = item_selectors.selector_from_proto(message)
    assert again == make()
    assert again is not item_selectors.selector_from_proto(message)


def test_message_is_read_by_which_field_is_set():
    from reverb.cc import schema_pb2

    assert item_selectors.selector_from_proto(schema_pb2.KeyDistributionOptions.FromString(b"\x08\x00")) == (
        item_selectors.Fifo()
    )
    with pytest.raises(ValueError, match="do not name a kind"):
        item_selectors.selector_from_proto(schema_pb2.KeyDistributionOptions())


@pytest.mark.parametrize("exponent", ["a", None, [1.0]])
def test_exponent_must_be_a_number(exponent):
    with pytest.raises(TypeError, match=r"^__init__\(\): incompatible constructor arguments\."):
        item_selectors.Prioritized(exponent)


def test_any_number_is_an_exponent():
    assert item_selectors.Prioritized(-1).options() == ("prioritized", -1.0)
    assert math.isnan(item_selectors.Prioritized(math.nan).options()[1])


def table(name="table", sampler=None, remover=None, rate_limiter=None):
    return reverb.Table(
        name,
        sampler or item_selectors.Uniform(),
        remover or item_selectors.Fifo(),
        max_size=10,
        rate_limiter=rate_limiter or rate_limiters.MinSize(1),
    )


@pytest.mark.parametrize("role", ["sampler", "remover", "rate_limiter"])
def test_one_object_for_two_tables_is_refused_and_both_are_named(role):
    part = rate_limiters.MinSize(1) if role == "rate_limiter" else item_selectors.Fifo()
    first = table("first", **{role: part})
    with pytest.raises(ValueError, match=rf"`{role}` of table `second`, .*, already belongs to table `first`"):
        table("second", **{role: part})
    del first
    gc.collect()
    table("third", **{role: part})


def test_one_object_as_sampler_and_remover_is_refused():
    selector = item_selectors.Fifo()
    with pytest.raises(ValueError, match="FifoSelector, is both `sampler` and `remover` of table `table`"):
        table(sampler=selector, remover=selector)
    table(sampler=selector)  # The failure has not bound the selector to a table.
