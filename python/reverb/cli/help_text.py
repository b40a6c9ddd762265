"""How `--help` is laid out: nothing is cut at any width of the terminal, and TOML keeps its lines."""

import inspect
import re
from typing import Any

from typer.core import TyperGroup

# Click, of which some versions of Typer have their own copy, keeps the lines of a paragraph after this line.
_AS_IT_IS = "\b\n"


class Group(TyperGroup):
    """Commands that are listed with the whole first sentence of each."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the names of the commands, and what they do."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                sentence = re.split(r"(?<=\.)\s", command.help or "", maxsplit=1)[0]
                rows.append((name, " ".join(sentence.split())))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def with_code(text: str) -> str:
    """The docstring of a command, in which the lines of indented paragraphs stay as they are."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(_AS_IT_IS + part if part.startswith("    ") else part for part in paragraphs)
