import json
import logging
import sys

import pytest

import reverb.logging
from reverb.logging.escaping import escaped, escaped_lines

HOSTILE = "a\x1b[31m\r\n\u202eb\u2028\ud800[bold]"
HARMLESS = "a\\x1b[31m\\r\\n\\u202eb\\u2028\\ud800[bold]"


def record(message, *arguments, **attributes):
    made = logging.LogRecord("reverb", logging.WARNING, __file__, 1, message, arguments, None)
    made.__dict__.update(attributes)
    return made


def test_json_lines_have_the_fields_of_their_record():
    fields = {"table": HOSTILE, "waited_s": 10.5, "operation": "insert", "msg": "not this", "limit": float("inf")}
    line = reverb.logging.JsonFormatter().format(record("%s waits", "insert", created=1.5, fields=fields))
    assert line.isascii()
    assert line.isprintable()
    assert list(json.loads(line).items()) == [
        ("ts", "1970-01-01T00:00:01.500000Z"),
        ("level", "warning"),
        ("logger", "reverb"),
        ("msg", "insert waits"),
        ("table", HOSTILE),
        ("waited_s", 10.5),
        ("operation", "insert"),
        ("limit", "inf"),
    ]


@pytest.mark.parametrize("fields", [None, "text", 3, {1: object()}])
def test_json_lines_parse_whatever_the_fields_are(fields):
    assert json.loads(reverb.logging.JsonFormatter().format(record("m", fields=fields)))["msg"] == "m"


def test_exceptions_are_a_field_of_json_and_lines_of_text():
    try:
        raise ValueError("reason")
    except ValueError:
        failed = record("failed", exc_info=sys.exc_info())
    line = reverb.logging.JsonFormatter().format(failed)
    assert "ValueError: reason" in json.loads(line)["exception"]
    assert "\n" not in line
    text = reverb.logging.TextFormatter("%(levelname)s %(message)s").format(failed)
    assert text.startswith("WARNING failed\nTraceback")


def test_text_lines_escape_what_would_act():
    assert reverb.logging.TextFormatter("%(levelname)s %(message)s").format(record("%s", HOSTILE)) == (
        f"WARNING {HARMLESS}"
    )


def test_escapes_leave_what_shows():
    assert escaped(HOSTILE) == HARMLESS
    for text in ("", "plain", "naïve 表 🎲 [bold] C:\\x"):
        assert escaped(text) == text
    assert escaped_lines("a\n\tb\x07\n") == "a\n\tb\\x07\n"
