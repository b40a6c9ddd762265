"""Makes text of users harmless for terminals and logs."""

import re
import unicodedata

# Control characters, among them those of bidirectional text; line and paragraph separators; halves of surrogate pairs.
_HARMFUL = ("Cc", "Cf", "Cs", "Zl", "Zp")


def escaped(text: str) -> str:
    """Returns the text with escapes, such as `\\x1b`, in place of characters that would act and not show.

    Names of tables, columns and clients may contain anything. A terminal would obey their control characters, and show
    the rest of the line in another order after those of bidirectional text.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(char) if unicodedata.category(char) in _HARMFUL else char for char in text)


def escaped_lines(text: str) -> str:
    """As `escaped`, for a text of several lines, which stay, as do the tabs that indent them."""
    return "".join(part if part in "\n\t" else escaped(part) for part in re.split("([\n\t])", text))


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()
