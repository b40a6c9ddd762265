import logging
import math
import pickle
import sys

import numpy as np
import pytest

from reverb import rate_limiters

FLOAT_MAX = sys.float_info.max
TOO_SMALL = (
    r"The size of error_buffer must be >= max\(1.0, samples_per_insert\) as smaller values could completely block "
    r"samples and/or insert calls\."
)
ABOVE = (
    r"The range covered by error_buffer is above samples_per_insert \* min_size_to_sample\. This will result in a "
    r"deadlock as soon as min_size_to_sample items have been inserted\."
)


@pytest.mark.parametrize(
    ("limiter", "parameters"),
    [
        (rate_limiters.RateLimiter(2.5, 3, -1, 7), (2.5, 3, -1.0, 7.0)),
        (rate_limiters.RateLimiter(np.float32(2), np.int64(3), 0, np.float64(7)), (2.0, 3, 0.0, 7.0)),
        (rate_limiters.MinSize(3), (1.0, 3, -FLOAT_MAX, FLOAT_MAX)),
        (rate_limiters.MinSize(np.int64(2)), (1.0, 2, -FLOAT_MAX, FLOAT_MAX)),
        (rate_limiters.Queue(10), (1.0, 1, 0.0, 10.0)),
        (rate_limiters.Stack(3), (1.0, 1, 0.0, 3.0)),
        (rate_limiters.SampleToInsertRatio(5, 10, 5), (5.0, 10, 45.0, 55.0)),
        (rate_limiters.SampleToInsertRatio(2, 10, (0, 50)), (2.0, 10, 0.0, 50.0)),
        (rate_limiters.SampleToInsertRatio(2, 10, [0, 50]), (2.0, 10, 0.0, 50.0)),
        (rate_limiters.SampleToInsertRatio(2, 10, np.array([0.0, 50.0])), (2.0, 10, 0.0, 50.0)),
        (rate_limiters.SampleToInsertRatio(2, 10, np.float64(8)), (2.0, 10, 12.0, 28.0)),
        (rate_limiters.SampleToInsertRatio(2, 10, (-FLOAT_MAX, FLOAT_MAX)), (2.0, 10, -FLOAT_MAX, FLOAT_MAX)),
    ],
)
def test_limiter_gives_the_core_its_four_parameters(limiter, parameters):
    assert limiter.internal_limiter == parameters
    assert isinstance(limiter, rate_limiters.RateLimiter)
    assert pickle.loads(pickle.dumps(limiter)).internal_limiter == parameters


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: rate_limiters.MinSize(0), ValueError, r"^min_size_to_sample \(0\) must be a positive integer$"),
        (lambda: rate_limiters.MinSize(0.5), ValueError, r"^min_size_to_sample \(0.5\) must be a positive integer$"),
        (lambda: rate_limiters.MinSize(2.0), TypeError, r"^__init__\(\): incompatible constructor arguments\."),
        (lambda: rate_limiters.MinSize(2**31), TypeError, r"^__init__\(\): incompatible constructor arguments\."),
        (lambda: rate_limiters.Queue("a"), TypeError, r"^__init__\(\): incompatible constructor arguments\."),
        (lambda: rate_limiters.RateLimiter("1", 1, 0, 1), TypeError, "samples_per_insert"),
        (lambda: rate_limiters.RateLimiter(0.0, 1, 0, 1), ValueError, r"^samples_per_insert \(0.0\) must be > 0$"),
        (lambda: rate_limiters.RateLimiter(math.nan, 1, 0, 1), ValueError, r"^samples_per_insert \(nan\) must be > 0$"),
        (lambda: rate_limiters.RateLimiter(1.0, 0, 0, 1), ValueError, r"^min_size_to_sample \(0\) must be a positive"),
        (lambda: rate_limiters.RateLimiter(1.0, 1, math.nan, 1), ValueError, "must not be NaN"),
    ],
)
def test_limiter_refuses_what_would_block_or_break_a_table(make, error, text):
    with pytest.raises(error, match=text):
        make()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((0, 10, 5), ValueError, r"^samples_per_insert \(0\) must be > 0$"),
        ((-1.5, 10, 100), ValueError, r"^samples_per_insert \(-1.5\) must be > 0$"),
        ((5, 10, 4.99), ValueError, f"^{TOO_SMALL}$"),
        ((0.5, 10, 0.99), ValueError, f"^{TOO_SMALL}$"),
        ((2, 10, (21, 50)), ValueError, f"^{ABOVE}$"),
        ((2, 0, (-21, 50)), ValueError, r"^min_size_to_sample \(0\) must be a positive integer$"),
        ((2, 10, (1, 2, 3)), ValueError, "too many values to unpack"),
        ((2, 10, (1,)), ValueError, "not enough values to unpack"),
        ((2, 10, np.float32(3)), TypeError, "cannot unpack non-iterable numpy.float32 object"),
        ((2, 10, np.int64(3)), TypeError, "cannot unpack non-iterable numpy.int64 object"),
    ],
)
def test_ratio_refuses_buffers_that_block(arguments, error, text):
    with pytest.raises(error, match=text):
        rate_limiters.SampleToInsertRatio(*arguments)


def test_rules_are_checked_in_order():
    with pytest.raises(ValueError, match="samples_per_insert"):  # The buffer and the size are wrong too.
        rate_limiters.SampleToInsertRatio(0, 0, 0)
    with pytest.raises(ValueError, match="The size of error_buffer"):  # The size is wrong too.
        rate_limiters.SampleToInsertRatio(1, 0, 0)


def test_ratio_warns_of_a_range_below_the_first_sample(caplog):
    with caplog.at_level(logging.WARNING, "reverb"):
        rate_limiters.SampleToInsertRatio(2, 10, (0, 5))
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        (
            "reverb",
            "The range covered by error_buffer is below samples_per_insert * min_size_to_sample. If the sampler cannot "
            "sample concurrently, this will result in a deadlock as soon as min_size_to_sample items have been "
            "inserted.",
        )
    ]
    caplog.clear()
    rate_limiters.SampleToInsertRatio(2, 10, (0, 20))
    assert not caplog.records


@pytest.mark.parametrize(
    ("limiter", "text"),
    [
        (
            rate_limiters.MinSize(3),
            "RateLimiter(samples_per_insert=1, min_diff_=-1.79769e+308, max_diff=1.79769e+308, min_size_to_sample=3)",
        ),
        (
            rate_limiters.SampleToInsertRatio(1 / 3, 10, (0.123456789, 1e9)),
            "RateLimiter(samples_per_insert=0.333333, min_diff_=0.123457, max_diff=1e+09, min_size_to_sample=10)",
        ),
        (
            rate_limiters.Queue(-5),
            "RateLimiter(samples_per_insert=1, min_diff_=0, max_diff=-5, min_size_to_sample=1)",
        ),
    ],
)
def test_repr_equals_that_of_the_reference(limiter, text):
    assert repr(limiter) == text
