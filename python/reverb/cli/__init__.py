"""The command `reverb`: serve tables, look at a server, look at checkpoints. Needs the extra `cli`."""

import sys

__all__ = ["main"]


def main() -> None:
    """The entry point of the command."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        print(f"reverb: {error}. The command needs more packages: pip install 'reverb-replay[cli]'", file=sys.stderr)
        sys.exit(1)
    from reverb.cli import app

    app.run()
