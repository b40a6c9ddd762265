"""Takes the pictures of the live page for the documentation: `python docs/screenshots/take.py`.

Needs playwright, Pillow and Debian's chromium. Runs real servers with real clients for two minutes, so that charts have
something to show. The fonts are those of the machine: Inter and JetBrains Mono (Debian: fonts-inter,
fonts-jetbrains-mono) look as intended.
"""

import argparse
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

Scheme = Literal["light", "dark"]
HERE = pathlib.Path(__file__).resolve().parent
PICTURES = HERE.parent / "figures" / "page"
CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
MAX_BYTES = 150_000
SECONDS_OF_TRAFFIC = 120
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
WIDE: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
NAMES = {
    "one": "one-table",
    "thirty": "thirty-tables",
    "chain": "stalled",
    "narrow": "narrow-band",
    "full": "disk-full",
}
# Programs, their roles in servers.py, the machine they seem to run on, and the server that they use.
CLIENTS = [
    ("actor.py", "one-actor", "actor-1", "one"),
    ("actor.py", "one-actor", "actor-2", "one"),
    ("actor.py", "one-actor", "actor-3", "one"),
    ("learner.py", "one-learner", "learner-1", "one"),
    ("actor.py", "one-actor", "actor-1", "dead"),
    ("learner.py", "one-learner", "learner-1", "dead"),
    ("actor.py", "thirty-actor", "actor-1", "thirty"),
    ("learner.py", "thirty-learner", "learner-1", "thirty"),
    ("actor_6.py", "stuck-actor", "actor-2", "thirty"),
    ("actor.py", "blocked-actor", "actor-1", "blocked"),
    ("learner.py", "blocked-learner", "learner-1", "blocked"),
    ("evaluator.py", "blocked-evaluator", "learner-1", "blocked"),
    ("actor.py", "item-actor", "actor-1", "item"),
    ("learner.py", "item-learner", "learner-1", "item"),
    ("actor.py", "chain-actor", "actor-1", "chain"),
    ("actor.py", "chain-actor", "actor-2", "chain"),
    ("learner.py", "chain-learner", "learner-1", "chain"),
    ("actor.py", "one-actor", "actor-1", "full"),
    ("learner.py", "one-learner", "learner-1", "full"),
    ("actor.py", "one-actor", "actor-1", "killed"),
    ("learner.py", "one-learner", "learner-1", "killed"),
]
# These begin late: after a restart, and where all processors are needed.
LATE = [
    ("actor.py", "one-actor", "actor-1", "restored"),
    ("learner.py", "one-learner", "learner-1", "restored"),
]
FAST = [("actor.py", "narrow-actor", "actor-1", "narrow"), ("learner.py", "narrow-learner", "learner-1", "narrow")]
LATE_SECONDS = 55
SERVERS = ("one", "thirty", "blocked", "item", "empty", "dead", "chain", "full", "killed")


class Programs:
    """The processes of servers and clients."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._all: list[subprocess.Popen[str]] = []
        self._folder = folder

    def start(self, name: str, *arguments: str, output: int | None = None) -> subprocess.Popen[str]:
        """Starts `servers.py` as a program of that name, which clients have in the pictures."""
        script = self._folder / name
        if not script.exists():
            script.symlink_to(HERE / "servers.py")
        command = [sys.executable, str(script), *arguments]
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.DEVNULL, text=True)
        self._all.append(program)
        return program

    def serve(self, name: str) -> tuple[subprocess.Popen[str], list[str]]:
        """Starts a server, and returns its address and that of its page."""
        program = self.start("replay.py", "serve", name, output=subprocess.PIPE)
        assert program.stdout is not None
        places: list[str] = json.loads(program.stdout.readline())
        return program, places

    def end(self) -> None:
        """Ends all processes."""
        for program in reversed(self._all):
            program.kill()
            program.wait()


def save(name: str, picture: bytes) -> None:
    """Saves a picture with at most 256 colours, and fewer if it were too large."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    for colours in (256, 128, 64, 32):
        packed = io.BytesIO()
        image.quantize(colours, dither=Image.Dither.NONE).save(packed, "PNG", optimize=True)
        if len(packed.getvalue()) <= MAX_BYTES:
            break
    (PICTURES / f"{name}.png").write_bytes(packed.getvalue())
    print(f"{name}.png: {len(packed.getvalue()) / 1000:.0f} kB, {colours} colours", flush=True)


def opened(browser: Browser, url: str, scheme: Scheme, viewport: ViewportSize, density: float = 1) -> Page:
    """Opens a page and waits until it shows tables."""
    context = browser.new_context(viewport=viewport, color_scheme=scheme, device_scale_factor=density)
    page = context.new_page()
    page.on("pageerror", lambda error: sys.exit(f"{url}: {error}"))
    page.goto(url)
    page.locator("h3, .tables tbody tr, .detail").first.wait_for(timeout=60_000)
    # Rates need two rounds, histograms and pictures their requests.
    page.wait_for_timeout(3500)
    return page


def shots(browser: Browser, pages: dict[str, str]) -> Iterator[tuple[str, Page]]:
    """Opens what is photographed, one after the other. First what is to show an age."""
    for scheme in SCHEMES:
        yield f"restored-{scheme}", opened(browser, pages["restored"], scheme, WIDE)
    for scheme in SCHEMES:
        for name in ("killed", "one", "thirty", "blocked", "empty", "chain", "full"):
            yield f"{NAMES.get(name, name)}-{scheme}", opened(browser, pages[name], scheme, WIDE)
        page = opened(browser, f"{pages['item']}/#/tables/0", scheme, {"width": 1440, "height": 1150})
        # Histograms and columns load when they scroll into view, which moves what is below them.
        for _ in range(3):
            page.evaluate("document.querySelector('.mounted + .mounted').scrollIntoView()")
            page.wait_for_timeout(2500)
        yield f"item-images-{scheme}", page
        yield f"phone-{scheme}", opened(browser, pages["one"], scheme, PHONE, 2)


def take(programs: Programs, browser: Browser, seconds: float) -> None:
    """Takes the pictures of all servers but the fast one."""
    # Each in a process of its own, since memory and log are those of the process.
    servers = {name: programs.serve(name) for name in SERVERS}
    pages = {name: url for name, (_, (_, url)) in servers.items()}
    clients = {}
    for program, role, machine, server in CLIENTS:
        clients[server, role] = programs.start(program, role, machine, servers[server][1][0])
    time.sleep(seconds - LATE_SECONDS)
    clients["killed", "one-actor"].kill()
    address, pages["restored"] = programs.serve("restored")[1]
    for program, role, machine, _ in LATE:
        programs.start(program, role, machine, address)
    time.sleep(LATE_SECONDS)
    mourners = {scheme: opened(browser, pages["dead"], scheme, WIDE) for scheme in SCHEMES}
    servers["dead"][0].kill()
    for name, page in shots(browser, pages):
        save(name, page.screenshot(full_page=name.startswith("one-")))
        page.context.close()
    for scheme, page in mourners.items():
        save(f"dead-{scheme}", page.screenshot())


def take_fast(programs: Programs, browser: Browser) -> None:
    """Takes the pictures of the server that needs all processors."""
    address, url = programs.serve("narrow")[1]
    for program, role, machine, _ in FAST:
        programs.start(program, role, machine, address)
    time.sleep(LATE_SECONDS)
    for scheme in SCHEMES:
        save(f"{NAMES['narrow']}-{scheme}", opened(browser, url, scheme, WIDE).screenshot())


def main() -> None:
    """Takes all pictures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=SECONDS_OF_TRAFFIC, help="of traffic before the pictures")
    seconds = parser.parse_args().seconds
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for part in (lambda programs: take(programs, browser, seconds), lambda programs: take_fast(programs, browser)):
            programs = Programs(pathlib.Path(folder))
            try:
                part(programs)
            finally:
                programs.end()
        browser.close()


if __name__ == "__main__":
    main()
