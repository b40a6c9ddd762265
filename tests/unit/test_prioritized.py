import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import reverb

probabilities = npst.arrays(np.float64, st.integers(1, 64), elements=st.floats(1e-9, 1.0))


def info_of(probability, table_size):
    return reverb.SampleInfo.zeros()._replace(
        probability=probability, table_size=np.full(len(probability), table_size, dtype=np.int64)
    )


@given(probabilities, st.integers(1, 10**7), st.floats(0, 1))
def test_weights_follow_the_paper(probability, table_size, beta):
    expected = (1 / (table_size * probability)) ** beta
    plain = reverb.importance_weights(info_of(probability, table_size), beta, normalize=False)
    np.testing.assert_allclose(plain, expected, rtol=1e-5)
    weights = reverb.importance_weights(info_of(probability, table_size), beta)
    np.testing.assert_allclose(weights, expected / expected.max(), rtol=1e-5)
    assert weights.dtype == plain.dtype == np.float32
    assert weights.max() == 1


@pytest.mark.parametrize("beta", [0, 1, 0.5, np.float32(0.5), np.float64(0.5)])
def test_beta_can_be_any_number(beta):
    weights = reverb.importance_weights(info_of(np.array([0.1, 0.4]), 10), beta)
    np.testing.assert_allclose(weights, [1.0, 0.25**beta], rtol=1e-6)


def test_the_info_is_not_modified():
    info = info_of(np.array([0.1, 0.4]), 10)
    reverb.importance_weights(info, 0.5)
    assert info.probability.tolist() == [0.1, 0.4]
    assert info.table_size.tolist() == [10, 10]


def test_a_list_is_accepted():
    info = reverb.SampleInfo([1, 2], [0.5, 0.5], [2, 2], [1.0, 1.0], [1, 1])
    assert reverb.importance_weights(info, 0.4).tolist() == [1.0, 1.0]
