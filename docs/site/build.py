"""Builds the site of the documentation: `make docs`.

The pages are the Markdown files of `docs/`, which code forges show as well. A link to a file outside `docs/` brings
that file into the site, below `project/`: Markdown as it is, code as a page with the code, the rest as a file. The
reference is made from the docstrings: a page for each public module.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
WORK = ROOT / "target/site"
PAGES = WORK / "pages"
# What Zensical has pages load that are to work as files.
OUTSIDE_WORKER = "https://unpkg.com/iframe-worker/shim"
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)|(?<=src=\")([^\"#:]+)(?=\")|(?<=srcset=\")([^\"#:]+)(?=\")")
# The language of a page with code, by the ending of the file, or by its name where it has none.
LANGUAGES = {
    ".cfg": "ini",
    ".conf": "nginx",
    ".proto": "protobuf",
    ".py": "python",
    ".rs": "rust",
    ".service": "ini",
    ".sh": "bash",
    ".toml": "toml",
    ".txt": "text",
    ".yaml": "yaml",
    ".yml": "yaml",
    "Dockerfile": "docker",
    "Makefile": "make",
}


def place(path):
    """Where a file of the repository lies among the pages."""
    if path.is_relative_to(DOCS):
        return PAGES / path.relative_to(DOCS)
    base = PAGES / "project" / path.relative_to(ROOT)
    if path.is_dir():
        return base / "index.md"
    return base.with_name(base.name + ".md") if language(path) else base


def language(path):
    """The language of code, or None for what is no code."""
    return LANGUAGES.get(path.suffix or path.name)


def linked(path, link):
    """The file or folder of the repository that a link of a page means. A folder's README stands for the folder."""
    target = (path.parent / link).resolve()
    readme = target / "README.md"
    return readme if readme.is_file() else target


def page(path):
    """The text of a page, and the files that it links to."""
    if path.is_dir():
        files = sorted(child for child in path.iterdir() if child.is_file() and not child.name.startswith("."))
        text = f"# `{path.relative_to(ROOT)}`\n\n" + "".join(f"- [{file.name}]({file.name})\n" for file in files)
        base = path / "index.md"
    elif language(path):
        # A fence that is longer than any in the code.
        return f"# `{path.relative_to(ROOT)}`\n\n````{language(path)}\n{path.read_text()}````\n", []
    else:
        text, base = path.read_text(), path
    targets = []

    def moved(match):
        target = linked(base, match[0])
        if not target.exists():
            sys.exit(f"{path.relative_to(ROOT)} links to {match[0]}, which does not exist")
        targets.append(target)
        return os.path.relpath(place(target), place(path).parent)

    # Code is left as it is.
    fences = FENCE.findall(text)
    parts = [LINK.sub(moved, part) for part in FENCE.split(text)]
    return "".join(part + fence for part, fence in zip(parts, [*fences, ""], strict=True)), targets


def gather():
    """Puts the pages of `docs/`, and all that they link to, into the folder that Zensical reads."""
    waiting = [*DOCS.glob("*.md"), *(DOCS / "decisions").glob("*.md")]
    done = set()
    while waiting:
        path = waiting.pop()
        if path in done:
            continue
        done.add(path)
        target = place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix == ".md":
            text, targets = page(path)
            target.write_text(text)
            waiting += targets
        else:
            shutil.copyfile(path, target)


def settle(site):
    """Puts our own script where Zensical names one of another host."""
    shutil.copyfile(DOCS / "site/worker.js", site / "assets/worker.js")
    for path in site.rglob("*.html"):
        worker = os.path.relpath(site / "assets/worker.js", path.parent)
        path.write_text(path.read_text().replace(OUTSIDE_WORKER, worker))


def main():
    """Builds `site/`, and returns the status of Zensical, for which a warning is an error."""
    shutil.rmtree(WORK, ignore_errors=True)
    PAGES.mkdir(parents=True)
    gather()
    shutil.copyfile(DOCS / "site/style.css", PAGES / "style.css")
    reference.write(ROOT / "python", PAGES / "reference")
    settings = (DOCS / "site/zensical.toml").read_text()
    pages = ", ".join(f'"reference/{name}.md"' for name in reference.modules(ROOT / "python/reverb"))
    settings = settings.replace("PACKAGE", str(ROOT / "python")).replace('"MODULES"', pages)
    (WORK / "zensical.toml").write_text(settings)
    status = subprocess.run(["zensical", "build", "--clean", "--strict"], cwd=WORK, check=False).returncode
    if status == 0:
        settle(WORK / "site")
        shutil.rmtree(ROOT / "site", ignore_errors=True)
        shutil.move(WORK / "site", ROOT / "site")
    return status


if __name__ == "__main__":
    sys.exit(main())
