"""What is checked of the files of a release, and what is said of them."""

import json
import platform
import subprocess
import sys
import zipfile

import install_matrix
import pytest
import wheel_build
import wheel_checks
import wheel_platforms
import wheel_proof

INFO = f"{wheel_platforms.DISTRIBUTION}-{wheel_platforms.version()}.dist-info"
LINUX = wheel_platforms.BY_NAME["linux-x86_64"]
MACOS = wheel_platforms.BY_NAME["macos-arm64"]
GOOD = MACOS.file(wheel_platforms.version())
RUN = {"python": "3.10.13", "emulated": "", "network": False, "passed": 0, "failed": 0}
NEEDS = """\
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
 0x0000000000000001 (NEEDED)             Shared library: [ld-linux-x86-64.so.2]
  0x0010: Version: 1  File: libc.so.6  Cnt: 2
  0x0020:   Name: GLIBC_2.2.5  Flags: none  Version: 2
  0x0030:   Name: GLIBC_2.17  Flags: none  Version: 3
"""


def contents():
    """What a wheel has, by its path, with an extension that is none."""
    metadata = ["Metadata-Version: 2.4", f"Version: {wheel_platforms.version()}", "Requires-Python: >=3.10"]
    metadata += [f"License-File: {name}" for name in wheel_checks.LICENCES]
    files = {f"{INFO}/licenses/{name}": (wheel_platforms.ROOT / name).read_bytes() for name in wheel_checks.LICENCES}
    sbom = (wheel_platforms.ROOT / "packaging" / wheel_checks.SBOM).read_bytes()
    files[f"{INFO}/sboms/{wheel_checks.SBOM}"] = sbom
    return files | {f"{INFO}/METADATA": "\n".join(metadata).encode(), "reverb/_rust.abi3.so": b"code"}


def problems(folder, files, name=GOOD):
    with zipfile.ZipFile(folder / name, "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
    return wheel_checks.wheel_problems(folder / name)


def test_a_good_wheel_has_no_problems(tmp_path):
    assert problems(tmp_path, contents()) == []


@pytest.mark.parametrize("path", [path for path in contents() if not path.endswith(("METADATA", ".so"))])
def test_licences_and_the_bill_of_materials_are_those_of_the_repository(tmp_path, path):
    assert problems(tmp_path, {one: content for one, content in contents().items() if one != path}) == [f"lacks {path}"]
    [complaint] = problems(tmp_path, contents() | {path: b"other"})
    assert complaint.startswith(f"has another {path} than ")


def test_other_faults_of_a_wheel_are_named(tmp_path):
    other = b"Version: 9\nRequires-Python: >=3.9\nLicense-File: LICENSE\nLicense-File: NOTICE\n"
    assert problems(tmp_path, contents() | {f"{INFO}/METADATA": other}) == [
        f"METADATA has version 9, Cargo.toml {wheel_platforms.version()}",
        "METADATA requires Python >=3.9",
        "METADATA lacks the licence THIRD-PARTY-LICENSES.txt",
    ]
    [complaint] = problems(tmp_path, contents() | {"reverb/_rust.cpython-311-x86_64-linux-gnu.so": b"code"})
    assert complaint.startswith("has these extensions, and not the one: ")
    [complaint] = problems(tmp_path, contents() | {"reverb/large": bytes(wheel_checks.MAX_BYTES)})
    assert complaint == "has 10.2 MB, not less than 10 MB"
    [complaint] = problems(tmp_path, contents(), MACOS.file("1.0").replace("abi3", "cp310"))
    assert complaint.startswith("its name is not that of a wheel of ours")


@pytest.mark.parametrize(
    ("text", "tag", "complaints"),
    [
        (NEEDS, LINUX.tag, []),
        (NEEDS + "  Name: GLIBC_2.34  Flags: none\n", LINUX.tag, ["needs GLIBC_2.34"]),
        (NEEDS + "  Name: GLIBC_2.34  Flags: none\n", "linux_x86_64", []),
        (NEEDS, "musllinux_1_2_x86_64", ["needs glibc"]),
        (NEEDS.split("  0x0010")[0], LINUX.tag, ["needs no glibc: is it of manylinux?"]),
        (
            NEEDS + " 0x1 (NEEDED)  Shared library: [libssl.so.3]\n",
            "linux_x86_64",
            ["needs libssl.so.3, which systems may lack"],
        ),
    ],
)
def test_an_extension_needs_what_every_system_of_its_name_has(text, tag, complaints):
    assert list(wheel_checks.elf_problems(text, tag)) == complaints


def test_what_cannot_be_built_here_is_named_with_the_reason(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(wheel_build.shutil, "which", lambda name: f"/bin/{name}")
    answer = subprocess.CompletedProcess([], 0, stdout="/nowhere\n")
    monkeypatch.setattr(wheel_build.subprocess, "run", lambda *_, **__: answer)
    assert wheel_build.obstacle(MACOS) == "its SDK is on macOS only"
    assert wheel_build.obstacle(LINUX).endswith(f": rustup target add {LINUX.target}")


def test_the_readme_has_a_program_with_a_server_and_one_for_a_remote_server():
    alone, remote = wheel_proof.programs()
    assert any("reverb.Server(" in program for program in alone)
    assert "reverb.Server(" not in remote
    assert len(remote.splitlines()) == 5


def test_this_python_is_among_those_at_hand():
    assert platform.python_version() in wheel_proof.pythons()


def test_documents_and_classifiers_say_what_the_records_say():
    records = wheel_platforms.records()
    assert (wheel_platforms.ROOT / install_matrix.DOCUMENT).read_text() == install_matrix.document(records)
    project = (wheel_platforms.ROOT / "pyproject.toml").read_text()
    assert install_matrix.classified(project, records) == project


def test_classifiers_are_what_ran_here_or_elsewhere_but_not_what_was_emulated():
    runs = [RUN, RUN | {"python": "3.9.1"}]
    records = {
        "macos-arm64": {"runs": runs},
        "linux-aarch64": {"runs": [RUN | {"python": "3.12.1", "emulated": "qemu-user 7.2"}]},
        "musllinux-x86_64": {"runs": []},
    }
    systems, pythons = install_matrix.classifiers(records)
    assert systems == ["Operating System :: MacOS"]
    assert pythons == [f"Programming Language :: Python :: 3.{minor}" for minor in (9, 10)]
    project = (wheel_platforms.ROOT / "pyproject.toml").read_text()
    changed = install_matrix.classified(project, records)
    assert '"Operating System :: MacOS",\n' in changed
    assert "POSIX :: Linux" not in changed
    assert "Python :: 3.12" not in changed


def test_the_matrix_says_what_never_ran():
    record = {"bytes": 1_000_000, "date": "2026-01-02", "tests": ["tests/a", "tests/b"]}
    records = {
        "linux-x86_64": record | {"runs": [RUN, RUN | {"python": "3.13.0", "passed": 7}]},
        "linux-aarch64": record | {"runs": [RUN | {"emulated": "qemu-user 7.2", "network": True}]},
        "musllinux-x86_64": record | {"runs": []},
    }
    rows = {
        line.split(" | ")[0]: line for line in install_matrix.document(json.loads(json.dumps(records))).splitlines()
    }
    words = {one.name: f"| {one.words}" for one in wheel_platforms.PLATFORMS}
    proof = "the programs of README.md, without a network; 7 of tests/a and tests/b on 3.13.0 (2026-01-02) |"
    assert f"| 1.0 MB | 3.10.13, 3.13.0 | {proof}" in rows[words["linux-x86_64"]]
    assert "the programs of README.md, under qemu-user 7.2 only (2026" in rows[words["linux-aarch64"]]
    assert "none | built, and never run (2026" in rows[words["musllinux-x86_64"]]
    assert "never built" in rows[words["macos-arm64"]]
