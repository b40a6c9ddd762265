"""The release command, on repositories that the tests make."""

import json
import re
import subprocess

import pytest
import release
import wheel_platforms

VERSION = "1.2.0"
WHEEL = wheel_platforms.BY_NAME["linux-x86_64"]
MUSL = wheel_platforms.BY_NAME["musllinux-x86_64"]
RUN = {"python": "3.11.7", "emulated": "", "network": False, "passed": 5, "failed": 0}


class Repository:
    """A repository that is ready to be released, with a proven wheel, until a test spoils it."""

    def __init__(self, root):
        self.root, self.out = root, root / "dist/release"
        self.git("init", "--quiet")
        self.write("Cargo.toml", f'[workspace.package]\nversion = "{VERSION}"\n')
        self.write("Cargo.lock", f'[[package]]\nname = "reverb-python"\nversion = "{VERSION}"\n')
        self.write("packaging/reverb-replay.cdx.json", f'{{"purl": "pkg:pypi/reverb-replay@{VERSION}"}}')
        self.write(
            "CHANGELOG.md", f"# Changelog\n\n## {VERSION} (2026-01-02)\n\n- It flies.\n\n## 1.1.0 (2025)\n\n- Old.\n"
        )
        self.write("changelog.d/README.md", "About notes.\n")
        self.write(".gitignore", "/dist/\n")
        self.write("python/reverb/a.py", "a = 1\n")
        self.add_file(WHEEL, [RUN])
        self.commit()

    def git(self, *words):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(self.root), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def write(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a change")

    def add_file(self, platform, runs, **other):
        """A file of a platform, and its record. `other` replaces values of the record."""
        name = f"dist/wheels/{platform.file(VERSION)}"
        self.write(name, f"the wheel of {platform.name}")
        record = {"sha256": wheel_platforms.sha256(self.root / name), "sources": wheel_platforms.sources(self.root)}
        self.write(f"packaging/records/{platform.name}.json", json.dumps(record | {"runs": runs} | other))

    def release(self, monkeypatch, *words):
        """Runs the command: what it says against a release, as one text; empty if it made one."""
        monkeypatch.setattr("sys.argv", ["release.py", VERSION, *words])
        for name in ("AUTHOR", "COMMITTER"):
            monkeypatch.setenv(f"GIT_{name}_NAME", "a")
            monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@b")
        try:
            release.main(self.root)
        except SystemExit as refused:
            assert not (self.out / VERSION).exists()
            return str(refused.code)
        return ""


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


def test_a_release_has_files_hashes_note_and_tag(repository, monkeypatch):
    assert repository.release(monkeypatch) == ""
    folder, file = repository.out / VERSION, WHEEL.file(VERSION)
    assert sorted(path.name for path in folder.iterdir()) == ["NOTE.md", "SHA256SUMS", file]
    assert (folder / "SHA256SUMS").read_text() == f"{wheel_platforms.sha256(folder / file)}  {file}\n"
    note = (folder / "NOTE.md").read_text()
    assert "- It flies." in note
    assert "- Old." not in note
    assert f"| `{file}` | {WHEEL.words} | its tests ran there |" in note
    assert f"No file for: {wheel_platforms.PLATFORMS[1].words}; " in note
    assert repository.git("rev-parse", f"v{VERSION}^{{commit}}") == repository.git("rev-parse", "HEAD")


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("Cargo.toml", '[workspace.package]\nversion = "1.3.0"\n', "Cargo.toml has version 1.3.0"),
        ("Cargo.lock", 'name = "reverb-python"\nversion = "1.1.0"\n', "Cargo.lock has another version"),
        ("packaging/reverb-replay.cdx.json", "{}", "bill of materials has another version"),
        ("CHANGELOG.md", "# Changelog\n\n## 1.1.0 (2025)\n\n- Old.\n", "CHANGELOG.md has no notes on it"),
        ("CHANGELOG.md", f"## {VERSION} (2026)\n\n## 1.1.0 (2025)\n\n- Old.\n", "CHANGELOG.md has no notes on it"),
        ("changelog.d/late.fixed.md", "It no longer falls.\n", "notes are still in changelog.d, such as late.fixed.md"),
        ("python/reverb/a.py", "a = 2\n", "linux-x86_64: the record of tests is of other sources"),
        (f"dist/wheels/{WHEEL.file(VERSION)}", "rebuilt", "linux-x86_64: the record of tests is of another file"),
    ],
)
def test_what_does_not_agree_is_refused(repository, monkeypatch, name, text, complaint):
    repository.write(name, text)
    if not name.startswith("dist/"):
        repository.commit()
    assert complaint in repository.release(monkeypatch)
    assert repository.git("tag") == ""


def test_a_dirty_tree_is_refused(repository, monkeypatch):
    repository.write("docs/new.md", "new\n")
    assert "not committed: ?? docs/" in repository.release(monkeypatch)


def test_a_tag_is_made_once(repository, monkeypatch):
    repository.git("tag", f"v{VERSION}")
    assert f"the tag v{VERSION} exists" in repository.release(monkeypatch)
    assert repository.release(monkeypatch, "--tagged") == ""


def test_a_workflow_needs_its_tag_at_the_commit(repository, monkeypatch):
    assert f"there is no tag v{VERSION}" in repository.release(monkeypatch, "--tagged")
    repository.git("tag", f"v{VERSION}")
    repository.write("docs/new.md", "new\n")
    repository.commit()
    assert f"the tag v{VERSION} is of another commit" in repository.release(monkeypatch, "--tagged")


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        ([], release.NEVER_RAN),
        ([RUN | {"emulated": "qemu-user 7.2", "passed": 0}], "its tests never ran on that platform"),
        ([RUN | {"passed": 0}], "its tests never ran on that platform"),
        ([RUN, RUN | {"failed": 1}], "tests failed"),
    ],
)
def test_a_file_without_a_proof_is_named_by_who_releases_and_by_the_note(repository, monkeypatch, runs, reason):
    repository.add_file(MUSL, runs)
    repository.commit()
    complaint = f"{MUSL.name}: {reason}; take the file all the same with --unproven={MUSL.name}"
    assert complaint in repository.release(monkeypatch)
    assert repository.release(monkeypatch, f"--unproven={MUSL.name}") == ""
    note = (repository.out / VERSION / "NOTE.md").read_text()
    assert f"| `{MUSL.file(VERSION)}` | {MUSL.words} | **unproven**: {reason} |" in note
    assert f"| `{WHEEL.file(VERSION)}` | {WHEEL.words} | its tests ran there |" in note


def test_a_file_without_a_record_is_unproven(repository, monkeypatch):
    repository.git("rm", "--quiet", f"packaging/records/{WHEEL.name}.json")
    repository.commit()
    assert f"{WHEEL.name}: no record of tests" in repository.release(monkeypatch)


@pytest.mark.parametrize(("platform", "complaint"), [(WHEEL, "it is proven"), (MUSL, "there is no file for it")])
def test_only_what_needs_it_is_called_unproven(repository, monkeypatch, platform, complaint):
    assert f"--unproven={platform.name}: {complaint}" in repository.release(monkeypatch, f"--unproven={platform.name}")


def test_a_release_has_files(repository, monkeypatch):
    (repository.root / "dist/wheels" / WHEEL.file(VERSION)).unlink()
    assert "there are no files for it: run `make wheels`" in repository.release(monkeypatch)


def test_files_that_git_ignores_are_no_sources(repository):
    before = wheel_platforms.sources(repository.root)
    repository.write(".git/info/exclude", "*.pyc\n")
    repository.write("python/reverb/a.pyc", "cached")
    assert wheel_platforms.sources(repository.root) == before
    repository.write("python/reverb/b.py", "b = 1\n")
    assert wheel_platforms.sources(repository.root) != before


def test_the_workflow_is_for_the_platforms_of_a_release():
    text = (wheel_platforms.ROOT / ".github/workflows/release.yml").read_text()
    named = set(re.findall(r"(?:platform: |PLATFORMS=)([a-z][\w-]+)", text))
    assert named == set(wheel_platforms.BY_NAME)
    targets = re.findall(r"platform: ([\w-]+), .*target: ([\w-]+)", text)
    assert [(name, wheel_platforms.BY_NAME[name].target) for name, _ in targets] == targets
    assert text.startswith("# Never run yet:")
    assert set(re.findall(r"uses: \S+@(\S+) # v[\d.]+\n", text)) == set(re.findall(r"uses: \S+@(\S+)", text))
    assert not re.search(r"uses: \S+@(?![0-9a-f]{40} )", text)
