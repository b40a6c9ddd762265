"""The arguments of `reverb.cluster.connect`, none of which contacts a server."""

import pickle

import pytest

import reverb
from reverb.cluster import connect


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("a:1", "a:1"),
        ("a:1,b:2", "a:1,b:2"),
        (["a:1", "b:2"], "a:1,b:2"),
        (("a:1",), "a:1"),
        (["a:1", "[::1]:2"], "a:1,[::1]:2"),
        ("ipv4:a:1,b:2", "ipv4:a:1,b:2"),
        (["ipv4:a:1", "ipv4:b:2"], "ipv4:a:1,b:2"),
        (["grpcs://a:1", "grpcs://b:2"], "grpcs://a:1,b:2"),
        ("dns:///name:1", "dns:///name:1"),
        (["dns:///name:1"], "dns:///name:1"),
    ],
)
def test_addresses(given, address):
    assert connect(given).server_address == address


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (None, TypeError, "got None"),
        (b"a:1", TypeError, "bytes"),
        ([1], TypeError, "got 1"),
        ([], ValueError, "empty list"),
        ("", ValueError, "not a valid server address"),
        ("a", ValueError, "`a`"),
        ("a:1,b", ValueError, "`b`"),
        (["a:1", "b"], ValueError, "`b`"),
        (["a:1", "b:2,c:3"], ValueError, "'b:2,c:3'"),
        (["a:1", "dns:///b:2"], ValueError, "'dns:///b:2'"),
        (["a:1", "ipv4:b:2"], ValueError, "begin alike"),
        (["a:1", "grpcs://b:2"], ValueError, "begin alike"),
        ("unix:/a", ValueError, "'unix:/a'"),
        (["unix:/a", "unix:/b"], ValueError, "'unix:/a'"),
        ("http://a:1", ValueError, "http://a:1"),
    ],
)
def test_addresses_that_are_refused(given, error, text):
    with pytest.raises(error) as refusal:
        connect(given)
    assert text in str(refusal.value)


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("placement", "step", ValueError),
        ("on_shard_loss", "ignore", ValueError),
        ("on_shard_loss", None, ValueError),
        ("shard_timeout", 0, ValueError),
        ("shard_timeout", float("inf"), ValueError),
        ("shard_timeout", float("nan"), ValueError),
        ("shard_timeout", "soon", TypeError),
        ("max_pending_bytes", 0, ValueError),
        ("token", 1, TypeError),
        ("tls", "file", TypeError),
        ("allow_insecure", 1, TypeError),
        ("unix_peers", 7, TypeError),
    ],
)
def test_options_that_are_refused(option, value, error):
    with pytest.raises(error, match=option):
        connect("a:1", **{option: value})


def test_clients_are_made_by_connect():
    with pytest.raises(TypeError, match=r"reverb\.cluster\.connect"):
        reverb.cluster.Client("a:1")


def test_shards_are_added_to_a_list_only():
    client = connect("ipv4:127.0.0.1:1", shard_timeout=0.1)
    with pytest.raises(ValueError, match="not a valid server address"):
        client.add_shard("127.0.0.1")
    with pytest.raises(TypeError, match="host:port"):
        client.add_shard(None)
    with pytest.raises(ValueError, match="begin alike"):
        client.add_shard("grpcs://127.0.0.1:2")
    assert client.server_address == "ipv4:127.0.0.1:1"
    with pytest.raises(ValueError, match="addresses of that name"):
        connect("dns:///name:1").add_shard("127.0.0.1:2")


def test_pickles_keep_the_options():
    client = connect(
        ["a:1", "b:2"], placement="writer", on_shard_loss="raise", shard_timeout=2, max_pending_bytes=77, unix_peers=[5]
    )
    again = pickle.loads(pickle.dumps(client))
    assert isinstance(again, reverb.cluster.Client)
    assert again.endpoint == client.endpoint
    assert repr(again) == repr(client) == "reverb.cluster.Client, server_address=a:1,b:2"
    assert pickle.dumps(again) == pickle.dumps(client)
    with pytest.raises(pickle.PicklingError, match="token"):
        pickle.dumps(connect("a:1", token="0123456789abcdef0123456789abcdef", allow_insecure=True))


def test_commands_take_a_list_without_a_scheme_for_a_cluster():
    arguments = pytest.importorskip("reverb.cli.arguments")
    for text in ("a:1,b:2", "[::1]:1,[::1]:2", "a:1,[::1]:2"):
        assert arguments._endpoint(text, None, False).cluster is not None
    for text in ("a:1", "[::1]:1", "ipv4:1.2.3.4:1,1.2.3.5:2", "grpcs://a:1,b:2", "dns:///a:1"):
        assert arguments._endpoint(text, None, False).cluster is None
