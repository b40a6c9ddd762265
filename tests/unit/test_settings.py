"""The table of settings, and what is made of it."""

import dataclasses
import inspect
import pathlib
import re

import pytest

import reverb
from reverb import _settings
from reverb._settings import ARGUMENTS, SETTINGS, ServerOptions

OPERATE = pathlib.Path(__file__).parents[2] / "docs" / "operate.md"
# What a variable says, and what the server makes of it.
OF_LIBRARY = {
    "host": ("127.0.0.2", "127.0.0.2"),
    "allow_insecure": ("1", True),
    "heartbeat_interval": ("2.5", 2.5),
    "max_shared_bytes": ("1048576", 1 << 20),
    "http_port": ("24800", 24800),
    "http_host": ("127.0.0.3", "127.0.0.3"),
    "http_allowed_hosts": ("a.test, b.test", ("a.test", "b.test")),
    "metrics_per_table": ("off", False),
}


def values_of(options):
    return {name: value for part in dataclasses.asdict(options).values() for name, value in part.items()}


def parts():
    hints = inspect.get_annotations(ServerOptions, eval_str=True)
    return {name: [field.name for field in dataclasses.fields(part)] for name, part in hints.items()}


def test_each_setting_has_a_name_and_a_key_of_its_own():
    for values in ([one.name for one in SETTINGS], [one.key for one in SETTINGS]):
        assert len(set(values)) == len(values)
    port = ARGUMENTS["http_port"]
    assert (port.flag, port.variable) == ("--http-port", "REVERB_HTTP_PORT")


def test_options_of_a_server_are_its_arguments():
    fields = [name for part in parts().values() for name in part]
    # A file for the audit is for commands alone.
    assert sorted(fields) == sorted([*ARGUMENTS, "audit_log"])
    parameters = dict(inspect.signature(reverb.Server).parameters)
    assert parameters.pop("http_port").default == 0
    assert sorted([*parameters, "http_port"]) == sorted([*ARGUMENTS, "tables", "checkpointer"])
    assert all(parameter.default is None for parameter in parameters.values())


def test_a_server_passes_every_argument_on(monkeypatch):
    given = {}
    monkeypatch.setattr(ServerOptions, "of", lambda values: given.update(values) or 1 / 0)
    marks = {name: object() for name in ARGUMENTS}
    with pytest.raises(ZeroDivisionError):
        reverb.Server([reverb.Table.queue("queue", 1)], **marks)
    assert given == marks


def test_a_server_is_described_with_every_argument_and_its_variable():
    text = " ".join(inspect.getdoc(reverb.Server).split())
    for name, setting in ARGUMENTS.items():
        assert f" {name}: " in text
        assert (setting.variable in text) == setting.is_in_library


def test_none_means_not_given(monkeypatch):
    for setting in SETTINGS:
        monkeypatch.delenv(setting.variable, raising=False)
    default = ServerOptions.of(dict.fromkeys(ARGUMENTS))
    assert default == ServerOptions.of({})
    assert values_of(default) == {
        "port": 0,
        "host": "localhost",
        "allow_insecure": False,
        "tls": None,
        "tokens": None,
        "unix_peers": (),
        "audit_log": None,
        "max_message_size": 256 << 20,
        "heartbeat_interval": 15.0,
        "max_shared_bytes": None,
        "shard": None,
        "durability": None,
        "accept_loss": False,
        "http_port": 0,
        "http_host": "localhost",
        "http_allowed_hosts": (),
        "metrics_per_table": True,
    }


@pytest.mark.parametrize("name", ARGUMENTS)
def test_variable_counts_where_nothing_is_given(monkeypatch, name):
    setting = ARGUMENTS[name]
    assert (name in OF_LIBRARY) == setting.is_in_library
    text, expected = OF_LIBRARY.get(name, ("77", setting.default))
    monkeypatch.setenv(setting.variable, text)
    value = values_of(ServerOptions.of({name: None}))[name]
    assert value == expected or (name == "http_allowed_hosts" and value[:2] == expected)
    assert values_of(ServerOptions.of({name: None}, reads_environment=False)) == values_of(
        ServerOptions.of({}, reads_environment=False)
    )
    monkeypatch.setenv(setting.variable, "")
    assert values_of(ServerOptions.of({}))[name] == values_of(ServerOptions.of({}, reads_environment=False))[name]


def test_only_the_word_1_of_the_variable_allows_other_hosts(monkeypatch):
    for text in ("0", "true", "yes", "11"):
        monkeypatch.setenv("REVERB_ALLOW_INSECURE", text)
        assert not ServerOptions.of({}).security.allow_insecure


@pytest.mark.parametrize("text", ["0", "false", "no", "No", "off", "", "1", "true", "yes"])
def test_programs_and_serve_read_the_same_from_the_variable_of_returns(monkeypatch, text):
    click = pytest.importorskip("click")
    monkeypatch.setenv("REVERB_RETURNS", text)
    assert _settings.returns_by_default() == (not text or click.BOOL.convert(text, None, None))


def test_where_http_is_off_its_options_do_not_count(monkeypatch):
    monkeypatch.setenv("REVERB_HTTP_HOST", "0.0.0.0")
    monkeypatch.setenv("REVERB_METRICS_PER_TABLE", "sometimes")
    options = ServerOptions.of({"http_port": "off", "http_allowed_hosts": ["no host"]})
    assert options.observe.http_port == "off"
    with pytest.raises(ValueError, match="REVERB_METRICS_PER_TABLE must be on or off, got 'sometimes'"):
        ServerOptions.of({})


def test_the_guide_has_the_table():
    programs = {one.name: f"`{name}=`{', variable' * one.is_in_library}" for name, one in ARGUMENTS.items()}
    programs["returns"] = "`wait(returns=)`, variable"
    columns = [(one.flag, one.variable, one.key, programs.get(one.name, "no"), one.default_text) for one in SETTINGS]
    rows = [
        "| `{}` | `{}` | `{}` | {} | {} | {} |".format(*values, one.help)
        for values, one in zip(columns, SETTINGS, strict=True)
    ]
    found = [line for line in OPERATE.read_text().splitlines() if re.match(r"\| `--[a-z-]+` \| `REVERB_", line)]
    assert found == rows


def test_options_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        _settings.ServerOptions.of({}).listen.port = 3
