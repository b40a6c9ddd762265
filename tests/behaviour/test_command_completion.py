"""Completion of the command `reverb` in shells."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("typer", reason="the extra `cli` is not installed")
pytest.importorskip("rich", reason="the extra `cli` is not installed")


@pytest.fixture
def path(tmp_path):
    """A PATH on which `reverb` is this package's command."""
    command = tmp_path / "reverb"
    command.write_text(f"#!{sys.executable}\nfrom reverb.cli import main\nmain()\n")
    command.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


def script(path, shell):
    """What `reverb --show-completion` prints for a shell, which it would otherwise find among its parents."""
    return subprocess.run(
        ["reverb", "--show-completion", shell],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    ).stdout


@pytest.mark.parametrize(
    ("shell", "expected"),
    [
        ("bash", "complete -o default -F _reverb_completion reverb"),
        ("zsh", "compdef _reverb_completion reverb"),
        ("fish", "complete --command reverb"),
    ],
)
def test_there_is_a_script_for_each_shell(path, shell, expected):
    assert expected in script(path, shell)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["reverb", "he"], {"health"}),
        (["reverb", "checkpoint", ""], {"list", "show", "verify"}),
        (["reverb", "serve", "--log-f"], {"--log-format"}),
        (["reverb", "serve", "--log-format", ""], {"text", "json"}),
        (["reverb", "info", "localhost:1", "--st"], {"--stat"}),
    ],
)
def test_bash_completes(path, words, expected):
    # An address that nobody listens at: nothing asks the network.
    source = script(path, "bash") + (
        f"COMP_WORDS=({' '.join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}\n"
        '_reverb_completion reverb; printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-i"],
        input=source,
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
        start_new_session=True,
    )
    assert expected <= set(done.stdout.split())


def test_help_says_how_to_install_it(path):
    done = subprocess.run(
        ["reverb", "--help"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path, "COLUMNS": "200"},
    )
    assert "--install-completion" in done.stdout
