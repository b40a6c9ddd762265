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
NAMES = {"one": "one-table", "thirty": "thirty-tables"}
# Roles of servers.py, the machine they seem to run on, and the server that they use.
CLIENTS = [
    ("one-actor", "actor-1", "one"),
    ("one-actor", "actor-2", "one"),
    ("one-actor", "actor-3", "one"),
    ("one-learner", "learner-1", "one"),
    ("one-saver", "learner-1", "one"),
    ("one-actor", "actor-1", "dead"),
    ("one-learner", "learner-1", "dead"),
    ("thirty-actor", "actor-1", "thirty"),
    ("thirty-learner", "learner-1", "thirty"),
    ("blocked-actor", "actor-1", "blocked"),
    ("blocked-learner", "learner-1", "blocked"),
    ("blocked-evaluator", "learner-1", "blocked"),
    ("item-actor", "actor-1", "item"),
    ("item-learner", "learner-1", "item"),
]


class Programs:
    """The processes of servers and clients."""

    def __init__(self) -> None:
        self._all: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, output: int | None = None) -> subprocess.Popen[str]:
        """Starts `servers.py`."""
        command = [sys.executable, str(HERE / "servers.py"), *arguments]
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.DEVNULL, text=True)
        self._all.append(program)
        return program

    def serve(self, name: str) -> tuple[subprocess.Popen[str], list[str]]:
        """Starts a server, and returns its address and that of its page."""
        program = self.start("serve", name, output=subprocess.PIPE)
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
    """Opens what is photographed, one after the other."""
    for scheme in SCHEMES:
        for name in ("one", "thirty", "blocked", "empty"):
            yield f"{NAMES.get(name, name)}-{scheme}", opened(browser, pages[name], scheme, WIDE)
        page = opened(browser, f"{pages['item']}/#/tables/0", scheme, {"width": 1440, "height": 1150})
        # Histograms and columns load when they scroll into view, which moves what is below them.
        for _ in range(3):
            page.evaluate("document.querySelector('.mounted + .mounted').scrollIntoView()")
            page.wait_for_timeout(2500)
        yield f"item-images-{scheme}", page
        yield f"phone-{scheme}", opened(browser, pages["one"], scheme, PHONE, 2)


def main() -> None:
    """Takes all pictures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=SECONDS_OF_TRAFFIC, help="of traffic before the pictures")
    seconds = parser.parse_args().seconds
    PICTURES.mkdir(parents=True, exist_ok=True)
    programs = Programs()
    try:
        # Each in a process of its own, since memory and log are those of the process.
        servers = {name: programs.serve(name) for name in ("one", "thirty", "blocked", "item", "empty", "dead")}
        addresses = {name: places for name, (_, places) in servers.items()}
        for role, machine, server in CLIENTS:
            programs.start(role, machine, addresses[server][0])
        time.sleep(seconds)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            mourners = {scheme: opened(browser, addresses["dead"][1], scheme, WIDE) for scheme in SCHEMES}
            servers["dead"][0].kill()
            for name, page in shots(browser, {name: url for name, (_, url) in addresses.items()}):
                save(name, page.screenshot(full_page=name.startswith("one-")))
                page.context.close()
            for scheme, page in mourners.items():
                save(f"dead-{scheme}", page.screenshot())
            browser.close()
    finally:
        programs.end()


if __name__ == "__main__":
    main()
