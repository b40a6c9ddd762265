"""Packages that require dm-reverb by name accept what is installed here."""

import importlib.metadata
import subprocess
import sys

import pytest

pytestmark = pytest.mark.programs


def test_pip_misses_nothing_but_the_launcher_of_acme():
    outcome = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)
    assert outcome.stdout.splitlines() == ["dm-acme 0.4.0 requires dm-launchpad, which is not installed."]


def test_dm_reverb_is_an_empty_distribution_and_the_module_is_ours():
    [reverb] = {name for name, package in names_of_modules() if package == "reverb"}
    assert reverb == "reverb-replay"
    assert importlib.metadata.version("dm-reverb") == "0.14.1"
    assert {path.parent.suffix for path in importlib.metadata.files("dm-reverb")} == {".dist-info"}
    without_extras = [text for text in importlib.metadata.requires("dm-reverb") if "extra ==" not in text]
    assert without_extras == ["dm-tree", "portpicker", "reverb-replay"]


def names_of_modules():
    """Returns pairs of a distribution and one of its top-level packages."""
    for distribution in importlib.metadata.distributions():
        for package in {path.parts[0] for path in distribution.files or () if path.suffix == ".py"}:
            yield distribution.name, package
