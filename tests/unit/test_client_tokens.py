"""Tokens as programs and the environment give them to clients."""

import copy
import pickle

import pytest

import reverb
from reverb import _settings, aio
from reverb.data.endpoint import Endpoint

TOKEN = "rvb_a-token-that-nobody-may-see"
VARIABLES = ("REVERB_TOKEN", "REVERB_TOKEN_FILE", "REVERB_ALLOW_INSECURE")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def resolved(**given):
    return _settings.with_environment(Endpoint("a:1").given(**given))


def test_what_is_not_given_is_that_of_the_environment(environment):
    assert not resolved().has_token
    environment.setenv("REVERB_TOKEN", "rvb_environment")
    assert resolved().token == "rvb_environment"
    assert resolved(token=TOKEN).token == TOKEN
    environment.delenv("REVERB_TOKEN")
    environment.setenv("REVERB_TOKEN_FILE", "/run/token")
    assert (resolved().token, resolved().token_file) == (None, "/run/token")
    assert (resolved(token=TOKEN).token, resolved(token=TOKEN).token_file) == (TOKEN, None)


def test_empty_variables_are_not_set(environment):
    environment.setenv("REVERB_TOKEN", "")
    environment.setenv("REVERB_TOKEN_FILE", "")
    assert not resolved().has_token


def test_two_tokens_in_the_environment_are_refused(environment):
    environment.setenv("REVERB_TOKEN", TOKEN)
    environment.setenv("REVERB_TOKEN_FILE", "/run/token")
    with pytest.raises(ValueError, match="both REVERB_TOKEN and REVERB_TOKEN_FILE") as raised:
        reverb.Client("a:1")
    assert TOKEN not in str(raised.value)
    assert resolved(token="rvb_given").token == "rvb_given"


def test_plaintext_is_allowed_by_the_argument_or_the_variable(environment):
    assert resolved().allow_insecure is False
    for text, allowed in (("1", True), ("0", False), ("", False)):
        environment.setenv("REVERB_ALLOW_INSECURE", text)
        assert resolved().allow_insecure is allowed
        assert resolved(allow_insecure=True).allow_insecure is True
        assert resolved(allow_insecure=False).allow_insecure is False


@pytest.mark.parametrize("make", [reverb.Client, aio.Client])
@pytest.mark.parametrize("given", [{"token": TOKEN}, {}], ids=["given", "environment"])
def test_a_client_does_not_show_its_token(environment, make, given):
    if not given:
        environment.setenv("REVERB_TOKEN", TOKEN)
    client = make("localhost:1", **given)
    for text in (repr(client), str(client), f"{client}"):
        assert "token=***" in text
        assert TOKEN not in text
    assert TOKEN not in repr(Endpoint("a:1").given(token=TOKEN))


def test_a_client_without_a_token_does_not_speak_of_one():
    assert repr(reverb.Client("localhost:1")) == "Client, server_address=localhost:1"


@pytest.mark.parametrize("store", [pickle.dumps, copy.deepcopy], ids=["pickle", "deepcopy"])
def test_a_token_of_the_program_is_not_stored(store):
    client = reverb.Client("localhost:1", token=TOKEN)
    for part in (client, client.endpoint):
        with pytest.raises(pickle.PicklingError, match="REVERB_TOKEN_FILE") as raised:
            store(part)
        assert TOKEN not in str(raised.value)


def test_a_token_of_the_environment_is_that_of_the_process_that_unpickles(environment):
    environment.setenv("REVERB_TOKEN", TOKEN)
    pickled = pickle.dumps(reverb.Client("localhost:1", allow_insecure=True, unix_peers={7, 1000}))
    assert TOKEN.encode() not in pickled
    again = pickle.loads(pickled)
    assert again.endpoint == Endpoint("localhost:1", allow_insecure=True, unix_peers=(7, 1000))
    assert "token=***" in repr(again)
    environment.delenv("REVERB_TOKEN")
    assert "token" not in repr(pickle.loads(pickled))


@pytest.mark.parametrize("wrong", [TOKEN.encode(), [TOKEN], 7], ids=["bytes", "list", "int"])
def test_a_token_of_another_type_is_refused_without_being_shown(wrong):
    with pytest.raises(TypeError, match="`token` must be a str") as raised:
        reverb.Client("localhost:1", token=wrong)
    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize("wrong", ["", " \n", f"{TOKEN}\n{TOKEN}", f"{TOKEN} {TOKEN}", f"{TOKEN}ü"], ids=repr)
def test_a_text_that_cannot_be_a_token_is_refused_without_being_shown(wrong):
    with pytest.raises(ValueError, match="expected a token of visible ASCII") as raised:
        reverb.Client("ipv4:127.0.0.1:1", token=wrong, allow_insecure=True).server_info()
    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"allow_insecure": "yes"}, TypeError),
        ({"unix_peers": 1000}, TypeError),
        ({"unix_peers": "1000"}, TypeError),
        ({"unix_peers": {-1}}, ValueError),
        ({"unix_peers": {2**32 - 1}}, ValueError),
    ],
    ids=str,
)
def test_arguments_that_cannot_be_used_are_refused(given, kind):
    with pytest.raises(kind, match=next(iter(given))):
        reverb.Client("localhost:1", **given)
