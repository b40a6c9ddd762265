"""The files of TLS as programs give them, and what the environment adds."""

import dataclasses
import json
import pathlib
import pickle

import pytest

import reverb
from reverb import TLS, ServerTLS, _settings
from reverb.data.endpoint import Endpoint

FULL = TLS("ca.pem", "own.pem", "own.key", "replay")
VARIABLES = {"REVERB_CA": "env-ca.pem", "REVERB_CERT": "env.pem", "REVERB_KEY": "env.key"}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def resolved(tls=None, address="grpcs://a:1"):
    return _settings.with_environment(Endpoint(address, tls)).tls


def test_paths_are_kept_as_texts():
    assert TLS(pathlib.Path("ca.pem")).ca == "ca.pem"
    assert ServerTLS(pathlib.Path("a"), pathlib.Path("b"), pathlib.Path("c")) == ServerTLS("a", "b", "c")


@pytest.mark.parametrize("wrong", [{"cert": "a"}, {"key": "a"}, {"ca": ""}, {"server_name": ""}], ids=str)
def test_clients_files_that_cannot_be_used_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        TLS(**wrong)


@pytest.mark.parametrize("wrong", [{"ca": 1}, {"ca": b"ca.pem"}, {"server_name": 1}], ids=str)
def test_values_of_other_types_are_refused(wrong):
    with pytest.raises(TypeError, match=next(iter(wrong))):
        TLS(**wrong)
    with pytest.raises(TypeError, match="client_ca"):
        ServerTLS("a", "b", 1)
    with pytest.raises(TypeError, match="key"):
        ServerTLS("a", None)


def test_pickles_have_the_paths_and_other_processes_make_them_again():
    client = reverb.Client("grpcs://a:1", tls=FULL, max_pending_bytes=7)
    again = pickle.loads(pickle.dumps(client))
    assert again.endpoint == Endpoint("grpcs://a:1", FULL)
    for files in (FULL, ServerTLS("a", "b")):
        assert pickle.loads(pickle.dumps(files)) == files
        assert type(files)(**json.loads(json.dumps(dataclasses.asdict(files)))) == files


def test_what_is_not_given_is_that_of_the_environment(environment):
    assert resolved() == TLS()
    for name, value in VARIABLES.items():
        environment.setenv(name, value)
    assert resolved() == TLS("env-ca.pem", "env.pem", "env.key")
    assert resolved(TLS("ca.pem")) == TLS("ca.pem", "env.pem", "env.key")
    assert resolved(TLS(server_name="b")) == TLS("env-ca.pem", "env.pem", "env.key", "b")
    assert resolved(FULL) == FULL
    # Pickles do not contain what the environment has added.
    assert reverb.Client("grpcs://a:1").endpoint == Endpoint("grpcs://a:1")
    assert resolved(address="a:1") is None


@pytest.mark.parametrize("name", ["REVERB_CERT", "REVERB_KEY"])
def test_half_a_pair_in_the_environment_is_refused(environment, name):
    environment.setenv(name, "a")
    with pytest.raises(ValueError, match="REVERB_CERT and REVERB_KEY"):
        resolved()
    assert resolved(FULL) == FULL


def test_a_server_in_a_program_has_no_files_of_the_environment(environment):
    for name in ("TLS_CERT", "TLS_KEY", "TLS_CLIENT_CA"):
        environment.setenv(f"REVERB_{name}", name)
    assert _settings.ServerOptions.of({}).security.tls is None
    security = _settings.options_of_environment({}).security
    assert security.tls == ServerTLS("TLS_CERT", "TLS_KEY", "TLS_CLIENT_CA")
