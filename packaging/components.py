"""Writes what the wheel contains beside our own code: the crates that are linked into it, with their licences.

`make licences` writes both files again. `make check` runs this with `--check`, which refuses files that are out of
date:

- `THIRD-PARTY-LICENSES.txt`, which the wheel has among its licences;
- `packaging/reverb-replay.cdx.json`, a bill of materials (CycloneDX), which the wheel has among its SBOMs. That of
  maturin would also list what only builds the wheel, the crates of Windows, and folders of the machine that built it.
"""

import json
import pathlib
import re
import subprocess
import sys
import urllib.parse

import wheel_platforms

ROOT = pathlib.Path(__file__).parents[1]
LICENSES = "THIRD-PARTY-LICENSES.txt"
SBOM = "packaging/reverb-replay.cdx.json"
APACHE = "Apache-2.0"
# Files of a crate with licences, and with what must stand beside any licence.
_LICENSE_FILE = re.compile(r"(UN)?LICEN[CS]E|COPYING|COPYRIGHT|NOTICE", re.IGNORECASE)
_NOTICE_FILE = re.compile(r"NOTICE|COPYRIGHT|.*THIRD-PARTY", re.IGNORECASE)

HEAD = """\
The wheel of reverb-replay contains the crates below, and the standard library of Rust (MIT OR Apache-2.0). Of licences
to choose from, {apache} is chosen where it is one; its text is the file LICENSE. The other texts follow the list.

Made by `make licences`.
"""
RULE = "-" * 100


def metadata():
    """What cargo knows of the packages, their licences and dependencies."""
    # A crate of one platform that wheels are for is in the files.
    targets = [platform.target for platform in wheel_platforms.PLATFORMS if platform.target]
    platforms = [word for target in targets for word in ("--filter-platform", target)]
    command = ["cargo", "metadata", "--format-version=1", "--locked", *platforms]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


class Components:
    """The crates that are linked into the extension.

    Args:
      known: What `cargo metadata` prints.
    """

    def __init__(self, known):
        packages = {package["id"]: package for package in known["packages"]}
        nodes = {node["id"]: node for node in known["resolve"]["nodes"]}
        self.root = next(package for package in packages.values() if package["name"] == "reverb-python")
        self.needs = {}
        found = [self.root["id"]]
        while found:
            one = found.pop()
            # Neither what only builds or tests a crate, nor macros, which run in the compiler.
            needed = {
                dependency["pkg"]
                for dependency in nodes[one]["deps"]
                if any(kind["kind"] is None for kind in dependency["dep_kinds"])
                and not any("proc-macro" in target["kind"] for target in packages[dependency["pkg"]]["targets"])
            }
            self.needs[one] = needed
            found += needed - self.needs.keys()
        by_name = sorted(self.needs, key=lambda one: (packages[one]["name"], packages[one]["version"]))
        self.packages = {one: packages[one] for one in by_name}

    def of_others(self):
        """Those that are not parts of this repository."""
        return [package for package in self.packages.values() if package["source"] is not None]


def expression(package):
    """The licence as an SPDX expression. Older crates separate choices by a slash."""
    return re.sub(r" ?/ ?", " OR ", package["license"])


def is_apache(package):
    """Whether Apache-2.0 alone allows to use the crate."""
    return APACHE in expression(package).split(" OR ")


def texts(package, others):
    """The texts that must stand beside the crate. One without a file has those of its repository's other crates."""
    folder = pathlib.Path(package["manifest_path"]).parent
    wanted = _NOTICE_FILE if is_apache(package) else _LICENSE_FILE
    files = sorted(path for path in folder.iterdir() if wanted.match(path.name) and path.is_file())
    if files or is_apache(package):
        return [re.sub(r"[ \t\r]+$", "", path.read_text(), flags=re.MULTILINE).strip("\n") for path in files]
    for other in others:
        is_sister = other["repository"] == package["repository"] and other["license"] == package["license"]
        if is_sister and other["id"] != package["id"] and (found := texts(other, [])):
            return found
    raise SystemExit(f"{package['name']} {package['version']} ({package['license']}) has no text of its licence")


def licenses(components):
    """The text with all licences: the list of crates, and each text once with the crates that it is of."""
    others = components.of_others()
    lines, crates_of = [HEAD.format(apache=APACHE)], {}
    for package in others:
        name = f"{package['name']} {package['version']}"
        lines.append(f"{name}: {APACHE if is_apache(package) else expression(package)}")
        for text in texts(package, others):
            crates_of.setdefault(text, []).append(name)
    for text, names in crates_of.items():
        lines += ["", RULE, *names, RULE, "", text]
    return "\n".join(lines) + "\n"


def purl(package):
    """The name of a package by which databases of vulnerabilities know it."""
    return f"pkg:cargo/{package['name']}@{urllib.parse.quote(package['version'])}"


def sbom(components, lock):
    """The bill of materials, in CycloneDX' JSON. It has no time and no random number, so it can be compared.

    Args:
      components: The crates.
      lock: Text of `Cargo.lock`, for the hashes.
    """
    ours = f"pkg:pypi/reverb-replay@{components.root['version']}"
    hashes = {
        (name, version): digest
        for name, version, digest in re.findall(
            r'name = "(.+)"\nversion = "(.+)"\nsource = ".+"\nchecksum = "(.+)"', lock
        )
    }
    listed, needs = [], {ours: [purl(components.root)]}
    for one, package in components.packages.items():
        component = {
            "type": "library",
            "bom-ref": purl(package),
            "name": package["name"],
            "version": package["version"],
            "licenses": [{"expression": expression(package)}],
            "purl": purl(package),
        }
        if package["source"] is not None:
            digest = hashes[package["name"], package["version"]]
            component["hashes"] = [{"alg": "SHA-256", "content": digest}]
        listed.append(component)
        needs[purl(package)] = sorted(purl(components.packages[other]) for other in components.needs[one])
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": ours,
                "name": "reverb-replay",
                "version": components.root["version"],
                "licenses": [{"expression": expression(components.root)}],
                "purl": ours,
            }
        },
        "components": listed,
        "dependencies": [{"ref": ref, "dependsOn": others} for ref, others in needs.items()],
    }
    return json.dumps(document, indent=1) + "\n"


def main():
    """Writes the files, or compares them."""
    components = Components(metadata())
    made = {LICENSES: licenses(components), SBOM: sbom(components, (ROOT / "Cargo.lock").read_text())}
    for name, text in made.items():
        path = ROOT / name
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.exit(f"{name} is not what the crates say: run `make licences`")


if __name__ == "__main__":
    main()
