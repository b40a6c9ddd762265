"""What a table with a signature accepts, and how it refuses the rest."""

import re

import numpy as np
import pytest
from behaviour_support import draw, info_of, make_table

from reverb import errors
from reverb.tensor_spec import TensorSpec

SIGNATURE = {"a": TensorSpec([2], np.float32, "aa"), "b": TensorSpec([], np.int64)}
GOOD = {"a": np.zeros(2, np.float32), "b": np.int64(1)}


@pytest.fixture
def client(serve):
    return serve(make_table(signature=SIGNATURE))


def test_data_that_fit_are_accepted(client):
    client.insert(GOOD, {"table": 1.0})
    assert len(draw(client)[0].data) == 2


def test_structures_that_are_not_both_mappings_are_matched_by_position(client):
    client.insert([GOOD["a"], GOOD["b"]], {"table": 1.0})
    client.insert((GOOD["a"], [GOOD["b"]]), {"table": 1.0})
    assert info_of(client).current_size == 2


def test_whole_trajectory_signature_fits_a_row_with_its_time_axis(serve):
    client = serve(make_table(signature=TensorSpec([1, 3], np.float32)))
    client.insert(np.zeros(3, np.float32), {"table": 1.0})
    assert draw(client)[0].data[0].shape == (1, 3)


@pytest.mark.parametrize("shape", [[None], [None, 2], None])
def test_unknown_dimensions_fit_anything(serve, shape):
    client = serve(make_table(signature=TensorSpec(shape, np.float32)))
    client.insert(np.zeros(2, np.float32), {"table": 1.0})
    assert info_of(client).current_size == 1


def test_wrong_dtype_is_reported_with_the_references_text(client):
    with pytest.raises(errors.SignatureMismatchError) as caught:
        client.insert({"a": np.zeros(2), "b": 1}, {"table": 1.0})
    assert isinstance(caught.value, ValueError)
    assert str(caught.value) == (
        'a/aa: got float64 [2], table "table" takes float32 [2]. np.float32(x) makes one.\n'
        "Unable to CreateItem in table 'table' because Append was called with a tensor signature inconsistent with "
        "the table signature. At timestep offset 0, flattened index 0, saw a tensor of dtype double, shape [2], but "
        "expected tensor 'a/aa' of dtype float and shape compatible with [2].  (Flattened) table signature: "
        "0: Tensor<name: 'a/aa', dtype: float, shape: [2]>, 1: Tensor<name: 'b', dtype: int64, shape: []>, "
        "data signature: 0: Tensor<name: '', dtype: double, shape: [2]>, 1: Tensor<name: '', dtype: int64, shape: []>."
    )
    assert info_of(client).current_size == 0


def test_wrong_number_of_columns_is_reported_with_the_references_text(client):
    with pytest.raises(errors.SignatureMismatchError) as caught:
        client.insert({"a": np.zeros(3, np.float32)}, {"table": 1.0})
    assert str(caught.value) == (
        'table "table": missing: b\n'
        'table "table" takes 2 columns (a/aa, b), got 1.\n'
        "Unable to CreateItem in table 'table' because Append was called with a tensor signature inconsistent with "
        "table signature.  Append for timestep offset 0 was called with 1 tensors, but table requires 2 tensors per "
        "entry.  Table signature: 0: Tensor<name: 'a/aa', dtype: float, shape: [2]>, 1: Tensor<name: 'b', dtype: "
        "int64, shape: []>, data signature: 0: Tensor<name: '', dtype: float, shape: [3]>."
    )
    assert info_of(client).current_size == 0


@pytest.mark.parametrize(
    ("data", "culprit"),
    [
        ({"a": np.zeros(3, np.float32), "b": 1}, "a/aa"),
        ({"a": np.zeros((2, 2), np.float32), "b": 1}, "a/aa"),
        ({"a": np.zeros(2, np.float32), "b": np.int32(1)}, "b"),
        ({"a": np.zeros(2, np.float32), "b": "text"}, "b"),
    ],
)
def test_error_names_the_column_that_does_not_fit(client, data, culprit):
    with pytest.raises(errors.SignatureMismatchError, match=re.escape(f"expected tensor '{culprit}'")):
        client.insert(data, {"table": 1.0})
    assert info_of(client).current_size == 0


@pytest.mark.parametrize(
    "columns",
    [
        {"a": np.zeros((4, 2)), "b": np.zeros(4, np.int64)},
        {"a": np.zeros((4, 3), np.float32), "b": np.zeros(4, np.int64)},
        {"a": np.zeros((4, 2), np.float32)},
        {"a": np.zeros((4, 2), np.float32), "b": np.zeros((4, 1), np.int64)},
    ],
    ids=["dtype", "shape", "columns", "rank"],
)
def test_batch_that_does_not_fit_changes_nothing(client, columns):
    with pytest.raises(errors.SignatureMismatchError, match="table"):
        client.insert_batch(columns, {"table": 1.0})
    assert info_of(client).current_size == 0


def test_item_that_fits_only_one_of_two_tables_goes_into_neither(serve):
    client = serve(make_table("free"), make_table("strict", signature=SIGNATURE))
    with pytest.raises(errors.SignatureMismatchError, match="strict"):
        client.insert(np.zeros(2), {"free": 1.0, "strict": 1.0})
    assert info_of(client, "free").current_size == 0
    assert info_of(client, "strict").current_size == 0


@pytest.mark.parametrize("leaf", [None, 3, "float32", np.zeros(2)])
def test_signature_with_leaves_other_than_specs_is_refused(leaf):
    with pytest.raises(ValueError, match="Unsupported signature spec"):
        make_table(signature={"a": TensorSpec([], np.float32), "b": leaf})


def test_signature_keys_must_be_text():
    with pytest.raises(TypeError):
        make_table(signature={1: TensorSpec([], np.float32)})


@pytest.mark.parametrize("empty", [None, {}, ()])
def test_empty_signature_means_no_signature(serve, empty):
    client = serve(make_table(signature=empty))
    assert info_of(client).signature is None
    client.insert({"any": b"thing"}, {"table": 1.0})


def test_client_learns_the_tables_of_a_server_that_started_later(serve):
    client = serve(make_table(signature=SIGNATURE))
    client.insert(GOOD, {"table": 1.0})
    [sample] = client.sample("table", emit_timesteps=False, unpack_as_table_signature=True)
    assert set(sample.data) == {"a", "b"}
