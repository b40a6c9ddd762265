"""The live page in a browser: what it says about tables and waiting clients is what the server did."""

import re

import numpy as np
import pytest
from behaviour_support import program, run_program
from page_support import PATIENCE_MS, api, has_no_horizontal_scroll, table_of
from playwright.sync_api import expect

import reverb
from reverb import rate_limiters, selectors

pytestmark = pytest.mark.live

NUM_TABLES = 30
HOSTILE = {
    "markup": "<img src=x onerror=alert(1)>",
    "direction": "left\u202etfel\u2066",
    "lines": "a\nb\x1b[31m\x00",
    "long": "n" * 10_000,
}
# What takes up no place, or changes the direction, is shown as its code point.
SHOWN = {**HOSTILE, "direction": r"left\u{202e}tfel\u{2066}", "lines": r"a\u{a}b\u{1b}[31m\u{0}"}

INSERT = """
import sys
import numpy as np
import reverb

client = reverb.Client(sys.argv[1])
client.insert_batch(np.arange(1000, dtype=np.float32), {"values": np.ones(1000)})
"""
SAMPLE = """
import os, sys
import reverb

client = reverb.Client(sys.argv[1])
print(os.getpid(), flush=True)
next(client.sample("blocked"))
"""


def make_table(name, limiter=None):
    return reverb.Table(
        name=name,
        sampler=selectors.Uniform(),
        remover=selectors.Fifo(),
        max_size=5000,
        rate_limiter=limiter or rate_limiters.MinSize(1),
    )


@pytest.fixture(scope="module")
def server():
    blocked = rate_limiters.SampleToInsertRatio(2.0, min_size_to_sample=10, error_buffer=40.0)
    tables = [make_table("values"), make_table("blocked", blocked), *map(make_table, HOSTILE.values())]
    server = reverb.Server(tables)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def large_server():
    server = reverb.Server([make_table(f"table_{i:02}") for i in range(NUM_TABLES)])
    client = reverb.Client(f"localhost:{server.port}")
    for i in range(NUM_TABLES):
        client.insert(np.float32(i), {f"table_{i:02}": 1.0})
    yield server
    server.stop()


def card_of(page, name):
    link = page.get_by_role("link", name=name, exact=True)
    return page.locator("article").filter(has=link)


def test_items_of_another_process_are_counted(page, server):
    page.goto(server.dashboard_url)
    run_program(INSERT, f"localhost:{server.port}")
    expect(card_of(page, "values")).to_contain_text("1,000", timeout=PATIENCE_MS)
    assert table_of(page, "values")["items"] == 1000


def test_a_client_that_waits_is_shown_by_its_process_and_then_that_it_was_lost(page, server):
    page.goto(server.dashboard_url)
    with program(SAMPLE, f"localhost:{server.port}") as sampler:
        pid = sampler.line()
        row = page.locator(".clients li").filter(has_text=f":{pid}")
        expect(row).to_contain_text("for a sample of blocked", timeout=PATIENCE_MS)
        [document] = [wait for wait in api(page, "waits")["waits"] if wait["table_name"] == "blocked"]
        assert "10" in document["reason"]
        page.get_by_role("link", name="blocked", exact=True).click()
        wait = page.locator(".waits li").filter(has_text=pid)
        expect(wait).to_contain_text(document["reason"])
    expect(wait).to_have_count(0, timeout=PATIENCE_MS)
    page.get_by_role("link", name="Overview", exact=False).first.click()
    # The program was killed.
    expect(page.locator(".clients li.gone").filter(has_text=f":{pid}")).to_contain_text(
        "connection lost", timeout=PATIENCE_MS
    )


def test_the_verdict_stands_first_and_in_the_title(page, server):
    page.goto(server.dashboard_url)
    line = api(page, "verdict")["line"]
    words = line.partition(":")[0].split()[0]
    expect(page.locator(".verdict-line")).to_contain_text(words, timeout=PATIENCE_MS)
    expect(page).to_have_title(re.compile(f"^(\u25cf )?{re.escape(words)}"))
    assert page.locator(".verdict").bounding_box()["y"] < page.locator("#main").bounding_box()["y"]


def test_rates_and_events_are_read_from_charts_by_keys(page, server):
    run_program(INSERT, f"localhost:{server.port}")
    page.goto(server.dashboard_url)
    card_of(page, "values").get_by_role("link").click()
    slider = page.locator(".throughput-panel").get_by_role("slider")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("samples .* /s, inserts .* /s"), timeout=PATIENCE_MS)
    slider.focus()
    page.keyboard.press("Home")
    expect(page.locator(".throughput-panel .readout")).to_have_text(re.compile("inserts .* /s"))
    assert page.locator(".throughput-panel [data-event=start]").count() == 1
    page.get_by_role("button", name="1 hour").click()
    page.reload()
    expect(page.get_by_role("button", name="1 hour")).to_have_attribute("aria-pressed", "true")


def test_the_last_point_of_the_strip_is_how_far_the_learner_is_ahead(page, server):
    client = reverb.Client(f"localhost:{server.port}")
    for value in range(12):
        client.insert(np.float32(value), {"blocked": 1.0})
    list(client.sample("blocked", 7))
    page.goto(server.dashboard_url)
    point = card_of(page, "blocked").locator("[data-now]")
    limiter = table_of(page, "blocked")["limiter"]
    assert limiter["diff"] == 12 * 2.0 - 7
    assert limiter["ahead"] == limiter["diff"] / 2
    expect(point).to_have_attribute("data-now", f"{limiter['ahead']:g}", timeout=PATIENCE_MS)
    box, strip = (
        point.bounding_box(),
        card_of(page, "blocked").locator(".card-limiter .time-axes svg").first.bounding_box(),
    )
    assert strip["y"] <= box["y"] <= strip["y"] + strip["height"], "the point lies in the strip"


@pytest.mark.parametrize("kind", list(HOSTILE))
def test_names_are_text(page, server, kind):
    page.goto(server.dashboard_url)
    shown = SHOWN[kind][:300]
    link = page.locator("article .table-name").filter(has_text=shown)
    expect(link.first).to_be_visible()
    assert page.locator("img").count() == 0
    link.first.click()
    expect(page.locator("h1")).to_contain_text(shown)
    assert page.locator("img").count() == 0
    assert has_no_horizontal_scroll(page)


def test_thirty_tables_are_rows_that_can_be_sorted_and_filtered(page, large_server):
    page.goto(large_server.dashboard_url)
    rows = page.locator("table.tables tbody tr")
    expect(rows).to_have_count(NUM_TABLES)
    expect(rows.first).to_contain_text("table_00")
    sort = page.locator("table.tables thead").get_by_role("button", name="Table")
    sort.click()
    if "table_00" in rows.first.inner_text():
        sort.click()
    expect(rows.first).to_contain_text(f"table_{NUM_TABLES - 1}")
    assert len({row["height"] for row in (row.bounding_box() for row in rows.all())}) == 1, "one row height"
    page.reload()
    expect(rows.first).to_contain_text(f"table_{NUM_TABLES - 1}")
    page.get_by_label("Filter tables by name").fill("table_17")
    expect(rows).to_have_count(1)
    assert has_no_horizontal_scroll(page)


def test_a_hidden_tab_asks_less_often(page, server):
    page.clock.install()
    page.add_init_script("Object.defineProperty(document, 'hidden', { get: () => window.isHidden ?? false })")
    page.goto(server.dashboard_url)
    page.locator("article").first.wait_for()
    asked = lambda: sum(url.endswith("/api/v1/server") for url in page.watch.requests)  # noqa: E731
    rounds = asked()
    page.evaluate("window.isHidden = true")
    # The round that was due when the tab was hidden, and whatever it requests.
    with page.expect_request("**/api/v1/server"):
        page.clock.fast_forward(2_000)
    page.wait_for_load_state("networkidle")
    hidden = asked()
    assert hidden > rounds
    page.clock.fast_forward(5_000)
    page.wait_for_load_state("networkidle")
    assert asked() == hidden, "a hidden tab has asked within five seconds"
    with page.expect_request("**/api/v1/server"):
        page.clock.fast_forward(6_000)


def test_the_page_fits_a_phone(open_page, server, large_server):
    for one in (server, large_server):
        page = open_page(width=390, height=844, is_mobile=True, has_touch=True)
        page.goto(one.dashboard_url)
        page.locator(".table-name").first.wait_for()
        assert has_no_horizontal_scroll(page)
