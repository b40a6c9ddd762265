"""`reverb token`."""

import enum
import hashlib
import os
import secrets
import sys
import tempfile
from typing import Annotated

import typer

from reverb import _binding
from reverb.cli import help_text, output
from reverb.cli.arguments import Json
from reverb.data.tls import ROLES
from reverb.logging.escaping import escaped

app = typer.Typer(cls=help_text.Group, no_args_is_help=True, help="Make tokens for servers, and list those of a file.")

# 256 random bits.
_SECRET_BYTES = 32
_Role = enum.Enum("_Role", [(role, role) for role in ROLES])  # type: ignore[misc]


@app.command()
def new(
    name: Annotated[str, typer.Option(help="Name of the token, for logs: letters, digits and `.`, `_`, `-`, `@`.")],
    role: Annotated[_Role, typer.Option(help="What the token allows.")],
    file: Annotated[str | None, typer.Option(help="File of tokens to add the entry to; made if missing.")] = None,
) -> None:
    """Make a token. It is printed this one time, followed by its entry for the server's file of tokens.

    `view` sees numbers, `use` also reads and writes items, and `admin` also resets, saves and configures tables. A
    server that watches the file accepts the token within 5 s.
    """
    token = f"rvb_{secrets.token_urlsafe(_SECRET_BYTES)}"
    hashed = hashlib.sha256(token.encode()).hexdigest()
    entry = f'[[token]]\nname = "{name}"\nrole = "{role.value}"\nsha256 = "{hashed}"\n'
    _binding.tokens_of_text(entry, "the new token")
    if file is not None:
        _add(file, entry)
    print(token)
    if file is None:
        print(f"\n{entry}", end="")
    else:
        print(escaped(f"reverb: added {name} to {file}"), file=sys.stderr)


@app.command("list")
def list_command(
    file: Annotated[str, typer.Argument(help="File of tokens.")],
    json: Json = False,
) -> None:
    """List the names and the roles of the tokens in a file."""
    with open(file, encoding="utf-8") as opened:
        tokens = _binding.tokens_of_text(opened.read(), file)
    if json:
        output.print_json([{"name": name, "role": role} for name, role in tokens])
        return
    width = max((len(name) for name, _ in tokens), default=0)
    for name, role in tokens:
        print(f"{name:<{width}}  {role}")


def _add(path: str, entry: str) -> None:
    """Replaces the file at once by one that has the entry, too: a server never reads half of it."""
    path = os.path.realpath(path)
    before, mode = "", 0o600
    if os.path.exists(path):
        mode = os.stat(path).st_mode & 0o777
        with open(path, encoding="utf-8") as opened:
            before = opened.read()
    gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    after = before + gap + entry
    _binding.tokens_of_text(after, path)
    number, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".tokens-")
    try:
        with open(number, "w", encoding="utf-8") as opened:
            os.fchmod(number, mode)
            opened.write(after)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
