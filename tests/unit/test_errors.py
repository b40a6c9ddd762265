import inspect

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
    "UnavailableError": (RuntimeError,),
    "ResourceExhaustedError": (IndexError,),
    "DataLossError": (RuntimeError,),
    "StorageError": (RuntimeError,),
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


def test_a_deadline_is_not_a_runtime_error():
    assert not issubclass(reverb.DeadlineExceededError, RuntimeError)
