"""A Linux aarch64 on this machine: Debian's Python for it under `qemu-user`, with wheels of PyPI beside ours.

Debian's packages are unpacked into a folder, by an apt with a state of its own, so that nothing is installed here. What
runs so shows that the wheel loads and works on that processor. It is no proof for a release: no test runs so.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

QEMU = "qemu-aarch64-static"
PACKAGES = ("libgcc-s1", "libpython3-stdlib", "libstdc++6", "python3-minimal")
_TAGS = ("manylinux2014_aarch64", "manylinux_2_26_aarch64", "manylinux_2_27_aarch64", "manylinux_2_28_aarch64")


def obstacle():
    """Why nothing can run so here, or None."""
    for program, package in ((QEMU, "qemu-user-static"), ("apt-get", "apt"), ("dpkg-deb", "dpkg")):
        if not shutil.which(program):
            return f"{program} is missing; on Debian: apt-get install {package}"
    return None


def unpack(folder):
    """Downloads Debian's packages for aarch64, and unpacks them into a folder.

    Returns:
      The root of the files.
    """
    root = folder / "root"
    for part in ("state/lists/partial", "cache/archives/partial", "root"):
        (folder / part).mkdir(parents=True)
    (folder / "status").touch()
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures::": "arm64",
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        # The folder is this user's alone.
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-qq", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
    subprocess.run([*apt, "update"], check=True, stdout=subprocess.DEVNULL)
    download = [*apt, "-y", "--no-install-recommends", "--download-only", "install", *PACKAGES]
    subprocess.run(download, check=True, stdout=subprocess.DEVNULL)
    for package in (folder / "cache/archives").glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    return root


def proved(wheel, run_programs):
    """Runs a wheel for aarch64.

    Args:
      wheel: Its path.
      run_programs: Runs the README's programs, by a command that is Python and further environment variables.

    Returns:
      What was seen, as a list for the record; empty if it cannot run here.
    """
    if reason := obstacle():
        print(f"not run: {wheel.name}: {reason}")
        return []
    with tempfile.TemporaryDirectory() as folder:
        root = unpack(pathlib.Path(folder))
        python = [QEMU, "-L", str(root), str((root / "usr/bin/python3").resolve())]
        version = re.search(r"[\d.]+", subprocess.check_output([*python, "--version"], text=True))[0]
        minor = ".".join(version.split(".")[:2])
        tags = [word for tag in _TAGS for word in ("--platform", tag)]
        abis = [word for abi in (f"cp{minor.replace('.', '')}", "abi3", "none") for word in ("--abi", abi)]
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", "--target"]
        command += [os.path.join(folder, "site"), *tags, "--implementation", "cp", "--python-version", minor, *abis]
        subprocess.run([*command, wheel], check=True)
        qemu = subprocess.check_output([QEMU, "--version"], text=True)
        run_programs(python, {"PYTHONPATH": os.path.join(folder, "site")})
    seen = {"python": version, "emulated": re.search(r"version ([\d.]+)", qemu)[0].replace("version", "qemu-user")}
    return [seen | {"network": True, "passed": 0, "failed": 0}]
