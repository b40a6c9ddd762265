import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def read(path):
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has none")
    return tomllib.loads((ROOT / path).read_text())


def test_the_empty_distribution_satisfies_requirements_of_the_original():
    ours, stand_in = read("pyproject.toml")["project"], read("packaging/dm-reverb/pyproject.toml")
    project = stand_in["project"]
    assert project["name"] == "dm-reverb"
    # TF-Agents 0.19 requires ~=0.14.0: any 0.14.x.
    assert project["version"].startswith("0.14.")
    # What dm-reverb 0.14 requires, beside what replaces it.
    assert project["dependencies"] == ["dm-tree", "portpicker", ours["name"]]
    assert "tensorflow" in ours["optional-dependencies"]
    assert project["optional-dependencies"] == {"tensorflow": [f"{ours['name']}[tensorflow]"]}
    assert stand_in["tool"]["setuptools"]["packages"] == []


def test_the_citation_says_what_the_package_says():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: pip install kubernetes-validate")
    citation, project = yaml.safe_load((ROOT / "CITATION.cff").read_text()), read("pyproject.toml")["project"]
    assert citation["license"] == project["license"]
    assert citation["keywords"] == project["keywords"]
    assert citation["authors"] == project["authors"]


def test_a_bug_report_asks_for_what_the_doctor_prints():
    app = pytest.importorskip("reverb.cli.app", reason="the extra `cli` is not installed").app
    assert "doctor" in [command.callback.__name__ for command in app.registered_commands]
    assert "`reverb doctor`" in (ROOT / ".github/ISSUE_TEMPLATE/bug.md").read_text()
