"""Reads files that describe the tables of a server: TOML, or the textproto format of `reverb_server`."""

import dataclasses
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from reverb import item_selectors, rate_limiters
from reverb._settings import NUMBER, SETTINGS, TEXT, TRUE_OR_FALSE, Kind, Setting
from reverb.data.durability import Durability
from reverb.data.spec_text import parse_spec
from reverb.platform.default.checkpointers import DefaultCheckpointer
from reverb.reverb_types import SpecNest
from reverb.server import Table

_SELECTORS: dict[str, Callable[[], item_selectors.Selector]] = {
    "fifo": item_selectors.Fifo,
    "lifo": item_selectors.Lifo,
    "uniform": item_selectors.Uniform,
    "min_heap": item_selectors.MinHeap,
    "max_heap": item_selectors.MaxHeap,
}
_TABLE_KEYS = (
    *("sampler", "remover", "max_size", "max_times_sampled", "rate_limiter"),
    *("max_bytes", "seed", "signature", "stall_after"),
)
_KINDS = {"queue": Table.queue, "stack": Table.stack}
_LIMITER_KEYS = ("min_size", "samples_per_insert", "error_buffer", "min_diff", "max_diff")
# What only the file says of checkpoints. With the settings, all arguments of a checkpointer but one of dm-reverb that
# must be empty.
_CHECKPOINT_KEYS = {
    "load_path": TEXT,
    "fallback_checkpoint_path": TEXT,
    "tables": Kind(str, (list, dict), "a list of names, or a table of names in the checkpoint and on the server"),
    "override_definitions": TRUE_OR_FALSE,
    "compression": NUMBER,
}


@dataclasses.dataclass
class ServerConfig:
    """The contents of a configuration file.

    Attributes:
      path: Path of the file.
      tables: New tables, as described by the file.
      settings: Values of the settings that the file has, by their names.
      checkpoint: Arguments for DefaultCheckpointer; if empty, checkpoints are saved in a temporary folder.
    """

    path: str
    tables: list[Table]
    settings: dict[str, Any]
    checkpoint: dict[str, Any] = dataclasses.field(default_factory=dict)


def read(path: str) -> ServerConfig:
    """Reads a TOML file if the name ends in `.toml`, otherwise a textproto file.

    Raises:
      ValueError: The file does not describe a valid server. The error gives the line, or the section and the key.
      OSError: The file cannot be read.
    """
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        return _from_toml(path, text) if path.endswith(".toml") else _from_textproto(path, text)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise ValueError(f"{path}: {error}") from None


def key_names() -> list[str]:
    """All keys of a TOML file, with their sections. That of a table is `tables.NAME`."""
    return [
        *(setting.key for setting in SETTINGS),
        *(f"checkpoint.{key}" for key in _CHECKPOINT_KEYS),
        *(f"tables.NAME.{key}" for key in (*_TABLE_KEYS, *_KINDS)),
        *(f"tables.NAME.rate_limiter.{key}" for key in _LIMITER_KEYS),
    ]


def _from_textproto(path: str, text: str) -> ServerConfig:
    from reverb.server_executable import server_from_proto, server_main

    message = server_main.parse_config(text)
    return ServerConfig(
        path, server_from_proto.tables_from_proto(message.tables), {"port": message.port} if message.port else {}
    )


def _from_toml(path: str, text: str) -> ServerConfig:
    parsed = _toml_module().loads(text)
    sections: dict[str, list[str]] = {"": []}
    for setting in SETTINGS:
        section, _, name = setting.key.rpartition(".")
        sections.setdefault(section, []).append(name)
    sections["checkpoint"] += _CHECKPOINT_KEYS
    _check_keys("the file", parsed, (*sections.pop(""), "tables", *sections))
    for section, keys in sections.items():
        _check_keys(f"[{section}]", parsed.get(section, {}), tuple(keys))
    tables = parsed.get("tables", {})
    if not isinstance(tables, Mapping) or not tables:
        raise ValueError("there is no section [tables.NAME]")
    settings = {}
    for setting in SETTINGS:
        section, _, name = setting.key.rpartition(".")
        values = parsed.get(section, {}) if section else parsed
        if name in values:
            _check_value(setting, values[name])
            settings[setting.name] = values[name]
    checkpoint = dict(parsed.get("checkpoint", {}))
    _check_checkpoint(checkpoint)
    _check_durability(settings)
    return ServerConfig(path, [_table(name, section) for name, section in tables.items()], settings, checkpoint)


def _check_value(setting: Setting, value: Any) -> None:
    setting.kind.check_in_file(setting.key, value)
    if setting.check is None:
        return
    try:
        setting.resolve(setting.kind.of_text(setting.key, value) if isinstance(value, str) else value, False)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{setting.key}: {error}") from None


def _check_checkpoint(values: dict[str, Any]) -> None:
    for key, kind in _CHECKPOINT_KEYS.items():
        if key in values:
            kind.check_in_file(f"checkpoint.{key}", values[key])
    tables = values.get("tables", [])
    for name in [*tables, *(tables.values() if isinstance(tables, dict) else [])]:
        TEXT.check_in_file("a name in checkpoint.tables", name)
    for key, value in values.items():
        try:
            DefaultCheckpointer(**{"path": "unused", key: value}).internal_checkpointer()
        except (ValueError, TypeError) as error:
            raise ValueError(f"checkpoint.{key}: {error}") from None


def _check_durability(settings: dict[str, Any]) -> None:
    for name in settings.keys() & {"sync_interval", "max_log_bytes"}:
        try:
            Durability("process", **{name: settings[name]})
        except (ValueError, TypeError) as error:
            raise ValueError(f"durability.{name}: {error}") from None


def _toml_module() -> Any:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib


def _check_keys(place: str, section: Any, known: tuple[str, ...]) -> None:
    if not isinstance(section, Mapping):
        raise ValueError(f"{place} must be a section, got {section!r}")
    for key in section:
        if key not in known:
            raise ValueError(f"{place} has an unknown key {key!r}; known: {', '.join(known)}")


def _table(name: str, section: Any) -> Table:
    place = f"[tables.{name}]"
    kinds = [kind for kind in _KINDS if isinstance(section, Mapping) and kind in section]
    _check_keys(place, section, (*kinds[:1], "signature") if kinds else _TABLE_KEYS)
    try:
        for key in (*_KINDS, "max_size", "max_times_sampled", "max_bytes", "seed"):
            if not isinstance(section.get(key, 0), int):
                raise ValueError(f"{key} must be a number without a fraction, got {section[key]!r}")
        return _table_from(name, section)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{place}: {error}") from None


def _table_from(name: str, section: Mapping[str, Any]) -> Table:
    signature = _signature("signature", section["signature"]) if "signature" in section else None
    for kind, make in _KINDS.items():
        if kind in section:
            return make(name, section[kind], signature=signature)
    missing = [key for key in ("sampler", "remover", "max_size", "rate_limiter") if key not in section]
    if missing:
        raise ValueError(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    return Table(
        name,
        _selector("sampler", section["sampler"]),
        _selector("remover", section["remover"]),
        section["max_size"],
        limiter(section["rate_limiter"]),
        section.get("max_times_sampled", 0),
        signature=signature,
        max_bytes=section.get("max_bytes"),
        seed=section.get("seed"),
        stall_after=section.get("stall_after"),
    )


def _signature(path: str, value: Any) -> SpecNest:
    """A nest of specs: tables of the file become dicts, arrays lists, and texts specs."""
    if isinstance(value, str):
        try:
            return parse_spec(value)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    if not isinstance(value, (Mapping, list)):
        raise ValueError(f'{path}: expected a text such as "float32[4]", or a table of them, got {value!r}')
    if not value:
        raise ValueError(f"{path} is empty")
    if isinstance(value, list):
        return [_signature(f"{path}[{number}]", part) for number, part in enumerate(value)]
    return {key: _signature(f"{path}.{key}", part) for key, part in value.items()}


def _selector(role: str, value: Any) -> item_selectors.Selector:
    if isinstance(value, str) and value in _SELECTORS:
        return _SELECTORS[value]()
    if isinstance(value, Mapping) and list(value) == ["prioritized"]:
        return item_selectors.Prioritized(value["prioritized"])
    known = ", ".join(f'"{name}"' for name in _SELECTORS)
    raise ValueError(f"{role} must be one of {known}, or {{ prioritized = EXPONENT }}, got {value!r}")


def limiter(value: Any) -> rate_limiters.RateLimiter:
    """The rate limiter of a section `rate_limiter`.

    Raises:
      ValueError: A key is unknown or missing, or a value is out of range.
    """
    _check_keys("rate_limiter", value, _LIMITER_KEYS)
    if "min_size" not in value:
        raise ValueError("rate_limiter needs min_size")
    for key, number in value.items():
        if not isinstance(number, (int, float)) and not (key == "error_buffer" and isinstance(number, list)):
            raise ValueError(f"rate_limiter.{key} must be a number, got {number!r}")
    if "samples_per_insert" not in value:
        _check_keys("rate_limiter without samples_per_insert", value, ("min_size",))
        return rate_limiters.MinSize(value["min_size"])
    ratio, size = value["samples_per_insert"], value["min_size"]
    if "error_buffer" in value:
        buffer = value["error_buffer"]
        return rate_limiters.SampleToInsertRatio(ratio, size, tuple(buffer) if isinstance(buffer, list) else buffer)
    if "min_diff" not in value or "max_diff" not in value:
        raise ValueError("rate_limiter with samples_per_insert needs error_buffer, or min_diff and max_diff")
    return rate_limiters.RateLimiter(ratio, size, value["min_diff"], value["max_diff"])
