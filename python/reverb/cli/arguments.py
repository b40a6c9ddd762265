"""Arguments that several commands have."""

from typing import Annotated

import typer

from reverb import _binding
from reverb._settings import ADDRESS, with_environment
from reverb.cli import output
from reverb.data.endpoint import Endpoint


def address(text: str) -> Endpoint:
    """The endpoint of an address. One that is not valid ends the command with the status of wrong usage."""
    try:
        endpoint = with_environment(Endpoint(text))
        _binding.check_endpoint(endpoint)
    except ValueError as error:
        output.fail(error, output.WRONG_USAGE)
    return endpoint


Address = Annotated[
    Endpoint,
    typer.Argument(parser=address, metavar="ADDRESS", envvar=ADDRESS, help="Address of the server, `host:port`."),
]
TableName = Annotated[str, typer.Argument(help="Name of the table.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Timeout = Annotated[float, typer.Option(min=0, help="Seconds to wait for the server.")]
