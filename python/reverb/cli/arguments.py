"""Arguments and flags that several commands have."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args

import typer

from reverb import _binding
from reverb._settings import ADDRESS, with_environment
from reverb.cli import output
from reverb.data.cluster_options import ClusterOptions
from reverb.data.endpoint import Endpoint

Address = Annotated[
    Endpoint,
    typer.Argument(
        metavar="ADDRESS",
        envvar=ADDRESS,
        help="Address of the server, `host:port`; of a cluster, `host:port,host:port`.",
    ),
]
TableName = Annotated[str, typer.Argument(help="Name of the table.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Timeout = Annotated[float, typer.Option(min=0, help="Seconds to wait for the server.")]

# What a command takes that works on a server, and what is typed for it.
_TYPED: dict[Any, Any] = {Endpoint: str, Endpoint | None: str | None, str | Endpoint: str}
_FLAGS = {
    "token_file": Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File with the token that the server asks for, in place of REVERB_TOKEN and REVERB_TOKEN_FILE.",
        ),
    ],
    "allow_insecure": Annotated[
        bool,
        typer.Option(
            "--allow-insecure", help="Send the token without TLS, where others may read it, as REVERB_ALLOW_INSECURE=1."
        ),
    ],
}


def of_client(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command that works on a server the flags of clients, and the endpoint in place of the address.

    One that also takes a folder gets that as it is. An address that is not valid ends the command with the status of
    wrong usage.
    """
    signature = inspect.signature(command)
    parameters = signature.parameters
    [name] = [one for one, parameter in parameters.items() if _typed(parameter) is not None]
    takes_folders = get_args(parameters[name].annotation)[0] == str | Endpoint

    @functools.wraps(command)
    def run(*, token_file: str | None, allow_insecure: bool, **arguments: Any) -> None:
        text = arguments[name]
        if text is not None and not (takes_folders and output.is_folder(text)):
            arguments[name] = _endpoint(text, token_file, allow_insecure)
        command(**arguments)

    defaults: dict[str, Any] = {"token_file": None, "allow_insecure": False}
    flags = [
        inspect.Parameter(flag, inspect.Parameter.KEYWORD_ONLY, default=defaults[flag], annotation=annotation)
        for flag, annotation in _FLAGS.items()
    ]
    own = [one.replace(annotation=_typed(one) or one.annotation) for one in parameters.values()]
    run.__signature__ = signature.replace(parameters=[*own, *flags])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in (*own, *flags)}
    return run


def _typed(parameter: inspect.Parameter) -> Any:
    """The annotation of what is typed in place of an endpoint; None for other parameters."""
    kind, *described = get_args(parameter.annotation) or (None,)
    return Annotated[_TYPED[kind], described[0]] if kind in _TYPED and described else None


_SCHEMES = ("grpcs://", "ipv4:", "ipv6:", "dns:", "unix:")


def _endpoint(text: str, token_file: str | None, allow_insecure: bool) -> Endpoint:
    try:
        # Several addresses without a scheme are those of a cluster. No other client takes them.
        cluster = ClusterOptions() if "," in text and not text.startswith(_SCHEMES) else None
        endpoint = Endpoint(text, token_file=token_file, allow_insecure=allow_insecure or None, cluster=cluster)
        endpoint = with_environment(endpoint)
        _binding.check_endpoint(endpoint)
    except ValueError as error:
        output.fail(error, output.WRONG_USAGE)
    return endpoint
