"""Formats of log lines, for programs that collect them. The library itself configures no logging.

For example, each line of the logger `reverb` as one JSON object:

    handler = logging.StreamHandler()
    handler.setFormatter(reverb.logging.JsonFormatter())
    logging.getLogger("reverb").addHandler(handler)
"""

import datetime
import json
import logging
import math
from collections.abc import Mapping
from typing import Any

from reverb.logging.escaping import escaped

__all__ = ["JsonFormatter", "TextFormatter"]


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON, in ASCII.

    The keys are `ts` (RFC 3339, UTC), `level` (`debug`, `info`, `warning`, `error`, `critical`), `logger` and `msg`;
    then those of the dict `record.fields`, if the record has one: for example `table`, `operation`, `waited_s`,
    `client`, `path`, `bytes`. An exception is under `exception`, as text.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line, without a line break."""
        time = datetime.datetime.fromtimestamp(record.created, datetime.timezone.utc)
        line = {
            "ts": time.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, Mapping):
            line.update((str(name), value) for name, value in fields.items() if name not in line)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(_finite(line), default=str, allow_nan=False)


class TextFormatter(logging.Formatter):
    """Formats records as `logging.Formatter` does, but control characters of messages are escaped.

    A message may contain text of users, such as the name of a table. It can neither move the cursor of a terminal nor
    begin a line of its own. Tracebacks keep their lines.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        """Returns the first line."""
        return escaped(super().formatMessage(record))


def _finite(value: Any) -> Any:
    """The value with texts for the numbers that JSON lacks."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): _finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return value
