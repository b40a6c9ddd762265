"""Prepares a release: `make release VERSION=0.2.0 UNPROVEN="musllinux-x86_64"`, after `make wheels`.

It refuses unless changelog, version, tag, working tree and the records of tests agree. Then `dist/release/VERSION/` has
the files, their hashes and the release note, and the commit has the tag `vVERSION`. Nothing is uploaded: that does the
workflow `release.yml`, which runs this again over the files that its own runners built and tested.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

import wheel_platforms

_NOTES = re.compile(r".+\.(added|changed|fixed)\.md")
NEVER_RAN = "built, and never run on that platform"


def git(root, *words):
    """What git prints, without the last line feed."""
    command = ["git", "-C", str(root), *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.rstrip("\n")


def changes(root, version):
    """The notes on a version in the changelog, or None."""
    text = (root / "CHANGELOG.md").read_text()
    found = re.search(rf"^## {re.escape(version)} .*?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return (found and found[1].strip()) or None


def text_problems(root, version):
    """Where a version is missing, or another."""
    ours = re.search(r'^\[workspace\.package\]\nversion = "(.+)"$', (root / "Cargo.toml").read_text(), re.MULTILINE)[1]
    if ours != version:
        yield f"Cargo.toml has version {ours}"
    if f'name = "reverb-python"\nversion = "{version}"\n' not in (root / "Cargo.lock").read_text():
        yield "Cargo.lock has another version: run `cargo check`"
    if f"pkg:pypi/reverb-replay@{version}" not in (root / "packaging/reverb-replay.cdx.json").read_text():
        yield "the bill of materials has another version: run `make licences`"
    if changes(root, version) is None:
        yield f"CHANGELOG.md has no notes on it: run `make release-notes VERSION={version}`"
    if left := sorted(path.name for path in (root / "changelog.d").iterdir() if _NOTES.fullmatch(path.name)):
        yield f"notes are still in changelog.d, such as {left[0]}: run `make release-notes VERSION={version}`"


def git_problems(root, tag, tagged):
    """What the tag and the working tree say against it."""
    if changed := git(root, "status", "--porcelain"):
        yield f"the working tree has changes that are not committed: {changed.splitlines()[0].strip()}"
    if git(root, "tag", "--list", tag):
        if not tagged:
            yield f"the tag {tag} exists"
        elif git(root, "rev-parse", f"{tag}^{{commit}}") != git(root, "rev-parse", "HEAD"):
            yield f"the tag {tag} is of another commit"
    elif tagged:
        yield f"there is no tag {tag}"


def why_unproven(record, path, sources):
    """Why the record does not prove a file, or None if it does.

    Args:
      record: The record of the platform, or None.
      path: The file.
      sources: The hash of the sources that the release is of.
    """
    if record is None:
        return "no record of tests"
    if record["sha256"] != wheel_platforms.sha256(path):
        return "the record of tests is of another file"
    if record["sources"] != sources:
        return "the record of tests is of other sources"
    if any(one["failed"] for one in record["runs"]):
        return "tests failed"
    if not record["runs"]:
        return NEVER_RAN
    return None if wheel_platforms.is_tested(record) else "its tests never ran on that platform"


def file_problems(files, reasons, unproven):
    """What is wrong with the choice of files.

    Args:
      files: Paths by the name of the platform.
      reasons: Why files are not proven, by the name of the platform.
      unproven: Platforms whose file is taken all the same.
    """
    if not files:
        yield "there are no files for it: run `make wheels`"
    for name in sorted(reasons.keys() - unproven):
        yield f"{name}: {reasons[name]}; take the file all the same with --unproven={name}"
    for name in sorted(unproven - reasons.keys()):
        yield f"--unproven={name}: " + ("it is proven" if name in files else "there is no file for it")


def note(root, version, files, reasons):
    """The text of the release: what changed, and what each file is and has been through."""
    lines = [f"# reverb-replay {version}", "", changes(root, version), "", "## Files", ""]
    lines += ["| file | for | proof |", "|---|---|---|"]
    for name, path in files.items():
        proof = f"**unproven**: {reasons[name]}" if name in reasons else "its tests ran there"
        lines.append(f"| `{path.name}` | {wheel_platforms.BY_NAME[name].words} | {proof} |")
    missing = [one.words for one in wheel_platforms.PLATFORMS if one.name not in files]
    lines += ["", f"No file for: {'; '.join(missing)}."] if missing else []
    lines += ["", "Free-threaded CPython is not served: the wheels use the stable ABI, which it lacks."]
    return "\n".join(lines) + "\n"


def prepare(root, options):
    """Checks everything, and prepares the folder and the tag.

    Returns:
      The problems, as texts. If there are any, nothing was done.
    """
    version, tag = options.version, f"v{options.version}"
    names = {one.name: options.files / one.file(version) for one in wheel_platforms.PLATFORMS}
    files = {name: path for name, path in names.items() if path.is_file()}
    records, sources = wheel_platforms.records(options.records), wheel_platforms.sources(root)
    found = {name: why_unproven(records.get(name), path, sources) for name, path in files.items()}
    reasons = {name: reason for name, reason in found.items() if reason}
    problems = [*text_problems(root, version), *git_problems(root, tag, options.tagged)]
    problems += file_problems(files, reasons, set(options.unproven))
    if problems:
        return problems
    folder = options.out / version
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in files.values():
        shutil.copy2(path, folder)
    hashes = [f"{wheel_platforms.sha256(path)}  {path.name}\n" for path in files.values()]
    (folder / "SHA256SUMS").write_text("".join(hashes))
    (folder / "NOTE.md").write_text(note(root, version, files, reasons))
    if not options.tagged:
        git(root, "tag", "--annotate", "--message", f"reverb-replay {version}", tag)
    print(f"{folder}: {len(files)} files and their note; the tag is {tag}")
    return []


def main(root=wheel_platforms.ROOT):
    """Prepares the release that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version")
    parser.add_argument("--unproven", action="append", default=[], choices=wheel_platforms.BY_NAME, metavar="PLATFORM")
    parser.add_argument("--tagged", action="store_true", help="the commit has the tag already, as in the workflow")
    parser.add_argument("--files", type=pathlib.Path, default=root / "dist/wheels")
    parser.add_argument("--records", type=pathlib.Path, default=root / "packaging/records")
    parser.add_argument("--out", type=pathlib.Path, default=root / "dist/release")
    options = parser.parse_args()
    if problems := prepare(root, options):
        sys.exit(f"no release {options.version}:\n" + "\n".join(f"- {one}" for one in problems))


if __name__ == "__main__":
    main()
