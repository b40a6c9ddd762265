"""Which libraries' functions the extension uses to make tensors. The tensors are tested with PyTorch."""

import ctypes

import pytest

from reverb._binding import TensorMaker

NAME = b"dlpack_exchange_api"


class Api(ctypes.Structure):
    """The head of DLPack's table of functions."""


Api._fields_ = [
    ("major", ctypes.c_uint32),
    ("minor", ctypes.c_uint32),
    ("previous", ctypes.POINTER(Api)),
    ("allocator", ctypes.c_void_p),
    ("from_object", ctypes.c_void_p),
    ("to_object", ctypes.c_void_p),
]

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def capsule(api, name=NAME):
    return _new_capsule(ctypes.addressof(api), name, None)


def an_api(major, previous=None):
    api = Api(major=major, to_object=1)
    if previous is not None:
        api.previous = ctypes.pointer(previous)
    return api


@pytest.mark.parametrize("minor", [0, 3, 99])
def test_a_known_version_is_used(minor):
    api = an_api(1)
    api.minor = minor
    assert isinstance(TensorMaker.of(capsule(api)), TensorMaker)


def test_an_unknown_version_is_not_used():
    api = an_api(2)
    assert TensorMaker.of(capsule(api)) is None


def test_an_older_version_is_searched_for():
    older = an_api(1)
    between = an_api(2, older)
    newest = an_api(3, between)
    assert isinstance(TensorMaker.of(capsule(newest)), TensorMaker)


def test_without_the_function_there_is_no_maker():
    api = an_api(1)
    api.to_object = None
    assert TensorMaker.of(capsule(api)) is None


def test_other_objects_are_refused():
    api = an_api(1)
    other = b"another name"
    with pytest.raises(ValueError, match="PyCapsule"):
        TensorMaker.of(capsule(api, other))
    with pytest.raises(ValueError, match="PyCapsule"):
        TensorMaker.of(7)
