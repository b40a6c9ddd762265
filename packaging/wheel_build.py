"""Builds files of a release: `python packaging/wheel_build.py linux-x86_64 sdist --out dist/wheels`.

What cannot be built on this machine is named with the reason, and is no failure: `make wheels` builds what it can.
Wheels for Linux are linked by zig against an old glibc, so any Linux builds them. Those for macOS need its SDK.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

import wheel_platforms


def obstacle(platform):
    """Why the wheel cannot be built here, or None."""
    if not shutil.which("cargo"):
        return "no cargo on PATH"
    if "apple" in platform.target and sys.platform != "darwin":
        return "its SDK is on macOS only"
    command = ["rustc", "--print", "target-libdir", "--target", platform.target]
    library = pathlib.Path(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    if not any(library.glob("libstd-*")):
        return f"no standard library of Rust for it: rustup target add {platform.target}"
    return None


def build(platform, out):
    """Builds the file of a platform into the folder `out`."""
    maturin = [sys.executable, "-m", "maturin"]
    if not platform.target:
        command = [*maturin, "sdist"]
    else:
        command = [*maturin, "build", "--release", "--locked", "--target", platform.target]
        command += ["--compatibility", platform.compatibility]
        command += ["--zig"] if "linux" in platform.target else []
    # Maturin asks the first `python3` on PATH for zig: it must be the one that has it.
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path}
    subprocess.run([*command, "--out", str(out)], cwd=wheel_platforms.ROOT, env=environment, check=True)


def main():
    """Builds what the command line names, or everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("platforms", nargs="*", metavar="PLATFORM", help=", ".join(wheel_platforms.BY_NAME))
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    out = arguments.out.resolve()
    missing = []
    for name in arguments.platforms or wheel_platforms.BY_NAME:
        platform = wheel_platforms.BY_NAME[name]
        reason = obstacle(platform) if platform.target else None
        if reason is not None:
            missing.append(f"not built: {name}: {reason}")
            continue
        build(platform, out)
        if not (out / platform.file(wheel_platforms.version())).is_file():
            sys.exit(f"{name}: {platform.file(wheel_platforms.version())} was expected in {out}")
    print("\n".join(missing))
    # Who names platforms wants them all.
    sys.exit(bool(arguments.platforms and missing))


if __name__ == "__main__":
    main()
