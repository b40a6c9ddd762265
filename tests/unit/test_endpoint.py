import dataclasses
import io
import json
import pickle

import pytest

import reverb
from reverb.data.endpoint import Endpoint
from reverb.data.tls import TLS

FULL = Endpoint("grpcs://a:1", tls=TLS(ca="ca.pem"), token_file="/run/token", allow_insecure=True, unix_peers=(7, 1000))
SECRET = "rvb_a-secret"


def test_an_endpoint_is_equal_to_one_with_the_same_fields_and_cannot_be_changed():
    assert Endpoint("a:1") == Endpoint("a:1") != Endpoint("a:2")
    assert len({Endpoint("a:1"), Endpoint("a:1")}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        Endpoint("a:1").address = "a:2"


def test_pickles_have_all_fields_that_are_not_secret():
    assert pickle.loads(pickle.dumps(FULL)) == FULL
    again = pickle.loads(pickle.dumps(reverb.Client(FULL, max_pending_bytes=7)))
    assert (again.endpoint, again.server_address) == (FULL, "grpcs://a:1")


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
    shown = dataclasses.replace(FULL, token=SECRET).shown()
    assert SECRET not in json.dumps(shown | {"tls": None})
    assert Endpoint(**shown) == FULL
