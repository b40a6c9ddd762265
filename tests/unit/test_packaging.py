import importlib.metadata
import json
import pathlib
import re

import components
import pytest

ROOT = pathlib.Path(__file__).parents[2]
LICENSES = ROOT / "THIRD-PARTY-LICENSES.txt"
SBOM = ROOT / "packaging/reverb-replay.cdx.json"


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


def test_the_wheel_has_the_licences_of_its_crates_and_its_bill_of_materials():
    installed = {path.name: path for path in importlib.metadata.files("reverb-replay")}
    for file, folder in ((LICENSES, "licenses"), (SBOM, "sboms")):
        assert installed[file.name].parent.name == folder
        assert installed[file.name].locate().read_text() == file.read_text()


def test_licences_and_the_bill_of_materials_name_the_same_crates():
    listed = re.findall(r"^(\S+ \S+): \S", LICENSES.read_text(), re.MULTILINE)
    document = json.loads(SBOM.read_text())
    listed_crates = {component["bom-ref"]: component for component in document["components"]}
    names = {ref: f"{component['name']} {component['version']}" for ref, component in listed_crates.items()}
    assert listed == [names[ref] for ref, component in listed_crates.items() if "hashes" in component]
    assert {"tokio", "pyo3", "zstd-sys", "reverb-core"} <= {component["name"] for component in listed_crates.values()}
    lock = (ROOT / "Cargo.lock").read_text()
    for component in listed_crates.values():
        assert f'name = "{component["name"]}"\nversion = "{component["version"]}"\n' in lock
    ours = document["metadata"]["component"]["bom-ref"]
    assert {entry["ref"] for entry in document["dependencies"]} == {ours, *listed_crates}
    assert {ref for entry in document["dependencies"] for ref in entry["dependsOn"]} == set(listed_crates)


class Crates:
    """Crates as `cargo metadata` describes them, with the files that a test gives them."""

    def __init__(self, folder):
        self._folder = folder
        self.known = {"packages": [], "resolve": {"nodes": []}}

    def add(self, name, needs=(), license="MIT", kind="lib", **files):
        """Adds a crate. `needs` are pairs of a name and the kind of the dependency, None for a normal one."""
        folder = self._folder / name
        folder.mkdir()
        for file, text in files.items():
            (folder / file).write_text(text)
        package = {"id": name, "name": name, "version": "1.2.3+a", "license": license, "repository": "one"}
        package |= {"source": None if name == "reverb-python" else "registry", "targets": [{"kind": [kind]}]}
        self.known["packages"].append(package | {"manifest_path": str(folder / "Cargo.toml")})
        dependencies = [{"pkg": other, "dep_kinds": [{"kind": kind}]} for other, kind in needs]
        self.known["resolve"]["nodes"].append({"id": name, "deps": dependencies})


@pytest.fixture
def crates(tmp_path):
    return Crates(tmp_path)


def test_only_what_is_linked_is_listed(crates):
    crates.add(
        "reverb-python", [("b", None), ("macro", None), ("tool", "build"), ("check", "dev")], license="Apache-2.0"
    )
    crates.add("b", [("a", None)], LICENSE="text of b")
    crates.add("a", [("b", None)], LICENSE="text of a")
    crates.add("macro", [("syn", None)], kind="proc-macro")
    for name in ("syn", "tool", "check", "unused"):
        crates.add(name)
    linked = components.Components(crates.known)
    assert [package["name"] for package in linked.of_others()] == ["a", "b"]
    text = components.licenses(linked)
    assert "\na 1.2.3+a: MIT\nb 1.2.3+a: MIT\n" in text
    assert "text of a" in text
    lock = "".join(f'name = "{one}"\nversion = "1.2.3+a"\nsource = "x"\nchecksum = "{one}{one}"\n' for one in "ab")
    document = json.loads(components.sbom(linked, lock))
    [first, second, _] = document["components"]
    assert (first["purl"], first["hashes"][0]["content"]) == ("pkg:cargo/a@1.2.3%2Ba", "aa")
    assert {"ref": first["purl"], "dependsOn": [second["purl"]]} in document["dependencies"]


def test_a_text_that_crates_share_stands_once(crates):
    crates.add("reverb-python", [("a", None), ("b", None)])
    crates.add("a", LICENSE="the same  \r\ntext\n")
    crates.add("b", COPYING="the same\ntext")
    text = components.licenses(components.Components(crates.known))
    assert text.count("the same\ntext\n") == 1
    assert "\na 1.2.3+a\nb 1.2.3+a\n" in text


@pytest.mark.parametrize("license", ["Apache-2.0", "MIT OR Apache-2.0", "Apache-2.0 / MIT", "MIT/Apache-2.0"])
def test_apache_is_chosen_and_only_notices_are_repeated(crates, license):
    crates.add("reverb-python", [("a", None)])
    crates.add("a", license=license, LICENSE="long text", NOTICE="made by a")
    text = components.licenses(components.Components(crates.known))
    assert "\na 1.2.3+a: Apache-2.0\n" in text
    assert "made by a" in text
    assert "long text" not in text


def test_all_texts_of_a_crate_count_where_several_licences_hold(crates):
    crates.add("reverb-python", [("a", None)])
    crates.add("a", license="Apache-2.0 AND BSD-3-Clause", LICENSE="one", LICENSE_bsd="two")
    text = components.licenses(components.Components(crates.known))
    assert "\na 1.2.3+a: Apache-2.0 AND BSD-3-Clause\n" in text
    assert "\none\n" in text
    assert "\ntwo\n" in text


def test_a_crate_without_a_text_has_that_of_its_repository_or_is_refused(crates):
    crates.add("reverb-python", [("a", None), ("b", None)])
    crates.add("a")
    crates.add("b", LICENSE="of the repository")
    assert "\na 1.2.3+a\nb 1.2.3+a\n" in components.licenses(components.Components(crates.known))
    crates.known["packages"][2]["license"] = "Zlib"
    with pytest.raises(SystemExit, match=r"a 1\.2\.3\+a \(MIT\) has no text of its licence"):
        components.licenses(components.Components(crates.known))
