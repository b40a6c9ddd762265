"""The command `reverb` serves tables, and inspects servers and checkpoints. Needs the extra `cli`."""

import sys

__all__ = ["main"]


def main() -> None:
    """The entry point of the command."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        print(f"reverb: {error}. To install all packages: pip install 'reverb-replay[cli]'", file=sys.stderr)
        sys.exit(1)
    from reverb.cli import app

    app.run()
