import inspect
import pathlib
import pickle
import re

import pytest

import reverb
from reverb import errors

BUILT_INS = {
    "DeadlineExceededError": (),
    "InvalidArgumentError": (ValueError,),
    "SignatureMismatchError": (ValueError,),
    "InvalidPriorityError": (ValueError,),
    "ItemTooLargeError": (ValueError,),
    "MessageTooLargeError": (ValueError,),
    "TableNotFoundError": (RuntimeError, ValueError),
    "CancelledError": (RuntimeError,),
    "CallCancelledError": (RuntimeError,),
    "ServerStoppedError": (RuntimeError,),
    "UnavailableError": (RuntimeError,),
    "ResourceExhaustedError": (IndexError,),
    "DataLossError": (RuntimeError,),
    "StorageError": (RuntimeError,),
    "UnauthenticatedError": (PermissionError,),
    "PermissionDeniedError": (PermissionError,),
    "UnimplementedError": (NotImplementedError,),
    "InternalError": (RuntimeError,),
}


@pytest.mark.parametrize(("name", "built_ins"), BUILT_INS.items())
def test_error_is_caught_as_the_built_in_that_the_reference_raises(name, built_ins):
    error = getattr(errors, name)
    assert issubclass(error, reverb.ReverbError)
    for built_in in built_ins:
        with pytest.raises(built_in, match="what went wrong"):
            raise error("what went wrong")


def test_every_error_is_listed_documented_and_in_the_tree():
    found = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    assert found == set(errors.__all__) == {"ReverbError", *BUILT_INS}
    for name in found:
        assert inspect.getdoc(getattr(errors, name))
        assert name in errors.__doc__


def test_every_kind_of_error_has_a_class():
    source = pathlib.Path(__file__).parents[2] / "crates" / "reverb-core" / "src" / "error.rs"
    kinds = re.findall(r'=> "(\w+)",', source.read_text())
    assert {f"{kind}Error" for kind in kinds} == set(BUILT_INS)


def test_a_stop_elsewhere_is_caught_as_a_lost_server_and_as_a_cancelled_call():
    assert issubclass(errors.CallCancelledError, errors.UnavailableError)
    assert issubclass(errors.CallCancelledError, errors.CancelledError)
    assert not issubclass(errors.CancelledError, errors.UnavailableError)


def test_a_stop_for_good_is_a_cancelled_call_but_not_a_lost_server():
    assert issubclass(errors.ServerStoppedError, errors.CancelledError)
    assert not issubclass(errors.ServerStoppedError, errors.UnavailableError)


TRANSIENT = {"CallCancelledError", "CancelledError", "UnavailableError"}


@pytest.mark.parametrize("name", errors.__all__)
def test_only_errors_of_lost_servers_are_transient(name):
    error = getattr(errors, name)("what went wrong")
    assert error.is_transient == (name in TRANSIENT)
    assert pickle.loads(pickle.dumps(error)).is_transient == error.is_transient


def test_an_error_that_differs_from_its_class_is_pickled_as_it_is():
    error = reverb.errors.UnavailableError("split")
    # As the extension sets it, and as earlier versions did.
    error.is_transient = False
    again = pickle.loads(pickle.dumps(error))
    assert not again.is_transient
    assert not again.may_pass
    earlier = reverb.errors.UnavailableError("split")
    earlier.__setstate__({"may_pass": False})
    assert not earlier.is_transient


class TestRaised:
    """The extension says of each error what the core says, whatever its class."""

    def test_of_a_server_that_is_not_there(self):
        client = reverb.Client("ipv4:127.0.0.1:1")
        with pytest.raises(reverb.DeadlineExceededError) as unreached:
            client.insert(1.0, {"table": 1.0}, timeout=0.1)
        assert unreached.value.is_transient
        assert not unreached.value.was_reached

    def test_of_tables(self):
        queue = reverb.Table.queue("queue", 1)
        server = reverb.Server([queue])
        client = server.localhost_client()
        with pytest.raises(reverb.errors.TableNotFoundError) as unknown:
            client.insert(1.0, {"other": 1.0})
        with pytest.raises(reverb.DeadlineExceededError) as late:
            client.sample_batch("queue", 1, 0.01)
        server.stop()
        with pytest.raises(reverb.errors.UnavailableError) as stopped:
            client.sample_batch("queue", 1)
        assert [error.value.is_transient for error in (unknown, late, stopped)] == [False, False, True]
        assert late.value.was_reached


def test_a_deadline_is_not_a_runtime_error():
    assert not issubclass(reverb.DeadlineExceededError, RuntimeError)
