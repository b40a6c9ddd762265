"""The live page for everybody: axe-core finds nothing in any view, and the keyboard reaches everything."""

import ml_dtypes
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from behaviour_support import program
from page_support import PATIENCE_MS, column_of, has_no_horizontal_scroll
from playwright.sync_api import expect

import reverb
from reverb import rate_limiters, selectors
from reverb.tensor_spec import TensorSpec

pytestmark = pytest.mark.live

WIDTHS = {
    "desk": {"width": 1280, "height": 900},
    "phone": {"width": 390, "height": 844, "is_mobile": True, "has_touch": True},
}
COLUMNS = {
    "colors": np.random.default_rng(0).integers(0, 256, (20, 16, 16, 3), dtype=np.uint8),
    "heat": np.linspace(-1, 1, 480).reshape(10, 6, 8),
    "ids": np.array([50_256, 11, 7], np.int64),
    "line": np.linspace(0, 1, 30).astype(ml_dtypes.bfloat16),
    "scalar": np.float32(1.5),
    "text": "some\ntext",
}
SAMPLE = """
import sys
import reverb

client = reverb.Client(sys.argv[1])
print("waits", flush=True)
next(client.sample("blocked"))
"""


def make_table(name, limiter=None, signature=None):
    limiter = limiter or rate_limiters.MinSize(1)
    return reverb.Table(name, selectors.Uniform(), selectors.Fifo(), 100, limiter, signature=signature)


@pytest.fixture(scope="module")
def server():
    signature = {
        name: TensorSpec(np.shape(value), np.object_ if isinstance(value, str) else np.asarray(value).dtype)
        for name, value in COLUMNS.items()
    }
    blocked = rate_limiters.SampleToInsertRatio(2.0, min_size_to_sample=10, error_buffer=40.0)
    server = reverb.Server([make_table("columns", signature=signature), make_table("blocked", blocked)])
    client = reverb.Client(f"localhost:{server.port}")
    for priority in (1.0, 2.0, 3.0):
        client.insert(COLUMNS, {"columns": priority})
    list(client.sample("columns", 5))
    client.insert(np.float32(1), {"blocked": 1.0})
    with program(SAMPLE, f"localhost:{server.port}") as sampler:
        sampler.line()
        yield server
    server.stop()


@pytest.fixture(scope="module")
def others():
    """A server without items, and one with thirty tables."""
    servers = [reverb.Server([make_table("empty")]), reverb.Server([make_table(f"t{i}") for i in range(30)])]
    yield servers
    for server in servers:
        server.stop()


def assert_accessible(page):
    results = Axe().run(page)
    assert results.violations_count == 0, results.generate_report()


def open_all_views(page):
    """Scrolls through the opened item, and opens what is closed."""
    for column in COLUMNS:
        column_of(page, f"data/{column}")
    for summary in page.locator("summary:visible").all():
        summary.click()


@pytest.mark.parametrize("width", list(WIDTHS))
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(open_page, server, others, scheme, width):
    options = {**WIDTHS[width], "color_scheme": scheme, "reduced_motion": "reduce"}
    for url in (server.dashboard_url, *(other.dashboard_url for other in others)):
        page = open_page(**options)
        page.goto(url)
        page.locator(".table-name").first.wait_for()
        if url == server.dashboard_url:
            expect(page.locator(".clients li").first).to_be_visible(timeout=PATIENCE_MS)
        assert_accessible(page)
        assert has_no_horizontal_scroll(page)
    page = open_page(**options)
    page.goto(f"{server.dashboard_url}/#/tables/0")
    open_all_views(page)
    assert_accessible(page)
    assert has_no_horizontal_scroll(page)
    for label in ("Numbers", "Lines", "3 frames", "Line"):
        for button in page.get_by_role("button", name=label, exact=True).all():
            button.click()
    assert_accessible(page)
    assert has_no_horizontal_scroll(page)


def test_axe_finds_nothing_while_the_server_is_gone(page):
    server = reverb.Server([make_table("table")])
    page.watch.allow(r"net::ERR_\w+")
    page.goto(server.dashboard_url)
    page.locator(".table-name").first.wait_for()
    server.stop()
    expect(page.locator(".verdict-line")).to_contain_text("reconnects by itself", timeout=PATIENCE_MS)
    assert_accessible(page)


def test_each_drawing_has_words(page, server):
    page.goto(f"{server.dashboard_url}/#/tables/0")
    open_all_views(page)
    unnamed = page.evaluate(
        """[...document.querySelectorAll("svg, canvas")].filter(node => !node.closest("[aria-hidden=true], [hidden]")
             && !node.getAttribute("aria-label")).map(node => node.outerHTML.slice(0, 200))"""
    )
    assert unnamed == []
    for section in page.locator(".column").all():
        if section.locator("canvas, svg").count():
            assert section.get_by_role("button", name="Numbers").count() == 1


def test_the_keyboard_reaches_an_item(page, server):
    page.goto(server.dashboard_url)
    page.locator(".table-name").first.wait_for()
    press_until(page, lambda: "Skip" in focused(page, "node.textContent"))
    press_until(page, lambda: focused(page, "node.getAttribute('href')") == "#/tables/0")
    page.keyboard.press("Enter")
    page.wait_for_url("**/#/tables/0")
    expect(page.locator("h1")).to_be_focused()
    page.locator(".item-list tbody button").first.wait_for()
    press_until(page, lambda: focused(page, "node.closest('.item-list') !== null"))
    keys = page.locator(".item-list tbody button").all_inner_texts()
    assert len(keys) == 3
    for key, expected in (
        ("ArrowDown", 1),
        ("ArrowDown", 2),
        ("ArrowDown", 2),
        ("ArrowUp", 1),
        ("Home", 0),
        ("End", 2),
    ):
        page.keyboard.press(key)
        expect(page.locator(".item-detail h3"), f"{key} of {keys}").to_have_text(f"Item {keys[expected]}")
        assert focused(page, "node.textContent") == keys[expected]
    column_of(page, "data/heat")
    press_until(page, lambda: focused(page, "node.closest('.column') && node.textContent") == "Numbers")
    page.keyboard.press("Enter")
    expect(page.locator(".column .numbers").first).to_be_visible()


def focused(page, expression):
    return page.evaluate(f"(node => {expression})(document.activeElement)")


def press_until(page, is_there, most=80):
    """Presses Tab until the focus is there. What has the focus on the way is marked as such, and in view."""
    for _ in range(most):
        page.keyboard.press("Tab")
        assert focused(page, "node === document.body || getComputedStyle(node).outlineStyle !== 'none'"), focused(
            page, "node.outerHTML.slice(0, 200)"
        )
        if is_there():
            return
    raise AssertionError("the focus never came there")
