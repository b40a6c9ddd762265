import dataclasses
import io
import pickle

import pytest

import reverb
from reverb.data.endpoint import Endpoint


@dataclasses.dataclass(frozen=True)
class Guarded(Endpoint):
    """An endpoint that needs something to be let in, as later ones will."""

    ca: str = ""
    token: str | None = dataclasses.field(default=None, repr=False)


GUARDED = Guarded("localhost:1", ca="ca.pem", token="a secret")


def test_an_endpoint_is_equal_to_one_with_the_same_fields_and_cannot_be_changed():
    assert Endpoint("a:1") == Endpoint("a:1") != Endpoint("a:2")
    assert len({Endpoint("a:1"), Endpoint("a:1")}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        Endpoint("a:1").address = "a:2"


@pytest.mark.parametrize("value", [GUARDED, reverb.Client(GUARDED), reverb.Client(GUARDED, max_pending_bytes=7)])
def test_pickles_and_texts_do_not_contain_secrets(value):
    pickled = pickle.dumps(value)
    assert b"ca.pem" in pickled
    assert b"a secret" not in pickled
    assert "a secret" not in repr(value)


def test_a_client_is_made_again_without_the_secret():
    again = pickle.loads(pickle.dumps(reverb.Client(GUARDED)))
    assert again.endpoint == Guarded("localhost:1", ca="ca.pem")
    assert again.server_address == "localhost:1"


def test_an_address_that_is_all_is_pickled_alone():
    names = []

    class Reader(pickle.Unpickler):
        def find_class(self, module, name):
            names.append((module, name))
            return super().find_class(module, name)

    again = Reader(io.BytesIO(pickle.dumps(reverb.Client("localhost:1")))).load()
    assert again.endpoint == Endpoint("localhost:1")
    # Earlier versions do not know the class of endpoints.
    assert names == [("reverb.client", "Client")]


def test_other_processes_get_what_is_shown():
    assert Guarded(**GUARDED.shown()) == Guarded("localhost:1", ca="ca.pem")
