import copy
import pickle

import pytest
from google.protobuf import descriptor_pool

import reverb
from reverb import _protos


def test_modules_have_the_names_of_generated_ones():
    from reverb.cc import patterns_pb2, schema_pb2
    from reverb.cc.checkpointing import checkpoint_pb2

    assert schema_pb2.DESCRIPTOR.name == "reverb/cc/schema.proto"
    assert schema_pb2.DESCRIPTOR.package == "deepmind.reverb"
    assert schema_pb2.KeyDistributionOptions.Prioritized(priority_exponent=0.5).priority_exponent == 0.5
    assert schema_pb2.TableInfo.DESCRIPTOR.full_name == "deepmind.reverb.TableInfo"
    assert patterns_pb2.Condition.ModuloEq(mod=2, eq=1).mod == 2
    assert checkpoint_pb2.PriorityTableCheckpoint().max_size == 0
    with pytest.raises(AttributeError, match="NoSuchMessage"):
        schema_pb2.NoSuchMessage  # noqa: B018


def test_a_message_has_one_class():
    from reverb.cc import schema_pb2

    assert _protos.message_class("deepmind.reverb.TableInfo") is schema_pb2.TableInfo
    assert type(schema_pb2.TableInfo().sampler_options) is schema_pb2.KeyDistributionOptions


def test_modules_are_attributes_of_the_package():
    assert reverb.cc.schema_pb2.__name__ == "reverb.cc.schema_pb2"
    assert reverb.cc.checkpointing.checkpoint_pb2.__name__ == "reverb.cc.checkpointing.checkpoint_pb2"


def test_messages_are_copied_and_pickled():
    from reverb.cc import schema_pb2

    options = schema_pb2.KeyDistributionOptions()
    options.prioritized.priority_exponent = 0.5
    for message in (options, options.prioritized):
        assert copy.deepcopy(message) == message
        assert pickle.loads(pickle.dumps(message)) == message


def test_timestamps_keep_their_methods():
    from reverb.cc import schema_pb2

    item = schema_pb2.PrioritizedItem()
    item.inserted_at.FromSeconds(5)
    assert item.inserted_at.ToSeconds() == 5


def test_the_default_pool_is_not_touched():
    _protos.message_class("deepmind.reverb.TableInfo")
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindFileByName("reverb/cc/schema.proto")


@pytest.mark.tensorflow
def test_messages_coexist_with_those_of_tensorflow():
    pytest.importorskip("tensorflow")
    from tensorflow.core.protobuf import struct_pb2

    theirs = struct_pb2.StructuredValue()
    theirs.tensor_spec_value.name = "a"
    ours = _protos.message_class("tensorflow.StructuredValue").FromString(theirs.SerializeToString())
    assert ours.tensor_spec_value.name == "a"
    assert type(ours) is not type(theirs)
