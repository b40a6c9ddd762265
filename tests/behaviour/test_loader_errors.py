"""What loaders say to common mistakes."""

import importlib.util

import numpy as np
import pytest
from behaviour_support import make_table

import reverb
from reverb.loaders import NumpyLoader


def test_an_unknown_option_names_the_loader_and_its_options():
    text = "NumpyLoader has no option 'batch'; it has: batch_size, prefetch, .*, seed, receipt$"
    with pytest.raises(TypeError, match=text):
        NumpyLoader("localhost:1", "table", batch=3)
    with pytest.raises(TypeError, match="NumpyLoader needs `batch_size`"):
        NumpyLoader("localhost:1", "table")


def test_priorities_are_updated_by_batch_and_not_by_key(serve):
    client = serve(make_table(sampler="uniform"))
    client.insert(0.0, {"table": 1.0})
    text = "batch: expected the Batch from this loader, got an array; keys alone: client.update_priorities"
    with NumpyLoader(client, "table", batch_size=2) as loader:
        batch = next(loader)
        with pytest.raises(TypeError, match=text):
            loader.update_priorities(batch.info.key, np.ones(2))
        with pytest.raises(TypeError, match="got ReplaySample"):
            loader.update_priorities(client.sample_batch("table", 2), np.ones(2))


def test_importance_weights_takes_batches_and_samples_too(serve):
    client = serve(make_table(sampler="prioritized"))
    client.insert_batch(np.arange(2.0), {"table": [1.0, 3.0]})
    with NumpyLoader(client, "table", batch_size=8) as loader:
        batch = next(loader)
    sample = client.sample_batch("table", 8)
    [single] = client.sample("table", emit_timesteps=False)
    for drawn in (batch, sample, single):
        expected = reverb.importance_weights(drawn.info, 0.5)
        np.testing.assert_array_equal(reverb.importance_weights(drawn, 0.5), expected)
    with pytest.raises(TypeError, match="info: expected sample.info, or the sample or batch, got ndarray"):
        reverb.importance_weights(batch.info.key, 0.5)


@pytest.mark.parametrize(
    ("name", "framework", "extra"),
    [
        ("TorchLoader", "PyTorch", "torch"),
        ("JaxLoader", "JAX", "jax"),
        ("TensorFlowLoader", "TensorFlow", "tensorflow"),
    ],
)
def test_a_loader_without_its_framework_says_how_to_install_it(name, framework, extra):
    if importlib.util.find_spec(extra) is not None:
        pytest.skip(f"{framework} is installed")
    with pytest.raises(ModuleNotFoundError) as raised:
        getattr(reverb.loaders, name)
    assert str(raised.value) == f"{name} needs {framework}: pip install 'reverb-replay[{extra}]'"
    assert raised.value.name == extra
