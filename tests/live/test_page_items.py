"""Histograms and items in the live page: what is drawn is what was inserted."""

import re

import ml_dtypes
import numpy as np
import pytest
from behaviour_support import info_of, num_inserts, num_samples
from page_support import PATIENCE_MS, column_of, has_no_horizontal_scroll, histogram_of, open_table
from playwright.sync_api import expect

import reverb
from reverb import rate_limiters, selectors
from reverb.tensor_spec import TensorSpec

pytestmark = pytest.mark.live

# More than the histograms look at.
NUM_VALUES = 70_000
NUM_FEW = 8
NUM_DRAWS = 6
NUM_STEPS = 12
LARGE_SHAPE = (2100, 2100)

rng = np.random.default_rng(0)
PICTURES = {
    "stack": rng.integers(0, 256, (84, 84, 4), dtype=np.uint8),
    "colors": rng.integers(0, 256, (96, 96, 3), dtype=np.uint8),
    "grey": rng.integers(0, 256, (40, 60), dtype=np.uint8),
    "planes": rng.integers(0, 256, (3, 20, 30), dtype=np.uint8),
    "film": rng.integers(0, 256, (70, 16, 24, 3), dtype=np.uint8),
    "shares": (rng.integers(0, 256, (32, 32, 3)) / 255).astype(np.float32),
}
TEXT = "first line\n\u202e<img src=x onerror=alert(1)> \x07 end"
VALUES = {
    "exact": np.array([2**63 - 1, -(2**63), 7], np.int64),
    "state": np.array([0.5, -1.25, 3, 0], np.float32),
    "embedding": np.linspace(-1, 1, 32, dtype=np.float32),
    "heat": np.linspace(-1, 1, 48, dtype=np.float64).reshape(6, 8),
    "input_ids": np.array([11, 50_256, 0, 31_337], np.int32),
    "scalar": np.float32(3.25),
    "flag": np.bool_(True),
    "complex": np.array([1 + 2j, -0.5 - 1j], np.complex64),
    "brain": np.array([0.5, -2.0, 1e30], ml_dtypes.bfloat16),
    "text": TEXT,
    "large": np.zeros(LARGE_SHAPE, np.float32),
    "empty": np.zeros((0, 3), np.float32),
    "a<b>\u202e": np.float32(1),
}


LENGTHS = (3, 1, 2)

# What `signature_of` and the page name a column by.
PREFIX = "data/"


def signature_of(columns):
    arrays = {name: np.asarray(value, object if isinstance(value, str) else None) for name, value in columns.items()}
    return {name: TensorSpec(array.shape, array.dtype, name) for name, array in arrays.items()}


def make_table(name, signature=None):
    return reverb.Table(
        name=name,
        sampler=selectors.Uniform(),
        remover=selectors.Fifo(),
        max_size=100_000,
        rate_limiter=rate_limiters.MinSize(1),
        signature=signature,
    )


@pytest.fixture(scope="module")
def server():
    series = {"reward": TensorSpec([], np.float32), "done": TensorSpec([], np.bool_)}
    ragged = {"tokens": TensorSpec([None], np.int64)}
    signatures = {
        "pictures": signature_of(PICTURES),
        "values": signature_of(VALUES),
        "series": series,
        "ragged": ragged,
    }
    names = ("pictures", "values", "series", "ragged", "many", "few", "drawn", "leaving", "none")
    server = reverb.Server([make_table(name, signatures.get(name)) for name in names])
    client = reverb.Client(f"localhost:{server.port}")
    client.insert(PICTURES, {"pictures": 1.0})
    client.insert(VALUES, {"values": 2.5})
    with client.trajectory_writer(num_keep_alive_refs=NUM_STEPS) as writer:
        for step in range(NUM_STEPS):
            writer.append({"reward": np.float32(step / 2), "done": np.bool_(step == NUM_STEPS - 1)})
        writer.create_item("series", 1.0, {name: column[:] for name, column in writer.history.items()})
        writer.flush()
    tokens = reverb.Ragged(np.arange(sum(LENGTHS)), np.array(LENGTHS))
    client.insert_batch({"tokens": tokens}, {"ragged": 1.0})
    client.insert_batch(np.arange(NUM_VALUES, dtype=np.float32), {"many": rng.random(NUM_VALUES)})
    client.insert_batch(np.arange(NUM_FEW, dtype=np.float32), {"few": np.arange(NUM_FEW) + 1.0, "drawn": 1.0})
    client.sample_batch("drawn", NUM_DRAWS)
    yield server
    server.stop()


def pixels(page, section, frame=0):
    """Reads the pixels of a canvas back, as an array `[height, width, 4]`."""
    page.watch.allow("willReadFrequently")  # Only tests read a canvas.
    canvas = section.locator(f"canvas[data-frame='{frame}']")
    canvas.scroll_into_view_if_needed()
    page.wait_for_function(
        "node => node.getContext('2d').getImageData(0, 0, node.width, node.height).data.some(value => value)",
        arg=canvas.element_handle(),
        timeout=PATIENCE_MS,
    )
    height, width, values = canvas.evaluate(
        "node => [node.height, node.width, [...node.getContext('2d').getImageData(0, 0, node.width, node.height).data]]"
    )
    return np.array(values, np.uint8).reshape(height, width, 4)


def assert_shows(page, section, expected, frame=0):
    """Compares a canvas with an array `[height, width]` or `[height, width, 3]`, exactly."""
    shown = pixels(page, section, frame)
    colors = np.broadcast_to(expected[..., None], (*expected.shape, 3)) if expected.ndim == 2 else expected
    np.testing.assert_array_equal(shown[..., :3], colors)
    assert (shown[..., 3] == 255).all()


def choose(section, view):
    section.get_by_role("button", name=view, exact=True).click()


def test_pictures_equal_the_inserted_arrays(page, server):
    open_table(page, server.dashboard_url, "pictures")
    assert_shows(page, column_of(page, PREFIX + "colors"), PICTURES["colors"])
    assert_shows(page, column_of(page, PREFIX + "grey"), PICTURES["grey"])
    assert_shows(page, column_of(page, PREFIX + "planes"), PICTURES["planes"].transpose(1, 2, 0))
    assert_shows(page, column_of(page, PREFIX + "shares"), np.round(PICTURES["shares"] * 255).astype(np.uint8))
    stack = column_of(page, PREFIX + "stack")
    for frame in range(4):
        assert_shows(page, stack, PICTURES["stack"][..., frame], frame)
    choose(stack, "RGBA")
    assert stack.locator("canvas").count() == 1


def test_film_strips_show_64_frames_a_page(page, server):
    open_table(page, server.dashboard_url, "pictures")
    film = column_of(page, PREFIX + "film")
    expect(film.locator("canvas")).to_have_count(64)
    assert_shows(page, film, PICTURES["film"][63], 63)
    film.get_by_role("button", name="Next frames").click()
    expect(film.locator("canvas")).to_have_count(len(PICTURES["film"]) - 64)
    assert_shows(page, film, PICTURES["film"][69], 69)


def test_values_are_exact(page, server):
    open_table(page, server.dashboard_url, "values")
    exact = column_of(page, PREFIX + "exact")
    choose(exact, "Numbers")
    expect(exact.locator("td")).to_have_text([str(value) for value in VALUES["exact"]])
    expect(column_of(page, PREFIX + "input_ids").locator(".text")).to_have_text("11 50256 0 31337")
    expect(column_of(page, PREFIX + "scalar").locator(".value")).to_have_text("3.25")
    expect(column_of(page, PREFIX + "flag").locator(".value")).to_have_text("true")
    expect(column_of(page, PREFIX + "complex").locator("td")).to_have_text(["1+2j", "-0.5-1j"])
    brain = column_of(page, PREFIX + "brain")
    choose(brain, "Numbers")
    shown = [float(text) for text in brain.locator("td").all_inner_texts()]
    assert [ml_dtypes.bfloat16(value) for value in shown] == list(VALUES["brain"])


def test_text_is_text(page, server):
    open_table(page, server.dashboard_url, "values")
    text = column_of(page, PREFIX + "text").locator(".text")
    shown = text.evaluate("node => node.textContent")
    assert shown == "first line\n\\u{202e}<img src=x onerror=alert(1)> \\u{7} end"
    expect(column_of(page, PREFIX + "a<b>\\u{202e}").locator(".value")).to_have_text("1")
    assert page.locator("img, main b").count() == 0


def test_what_cannot_be_shown_says_why(page, server):
    open_table(page, server.dashboard_url, "values")
    large = page.locator(".column").filter(has_text=PREFIX + "large")
    large.scroll_into_view_if_needed()
    expect(large).to_contain_text("Too large to show")
    expect(large).to_contain_text("16.8 MiB")
    empty = page.locator(".column").filter(has_text=PREFIX + "empty")
    empty.scroll_into_view_if_needed()
    expect(empty).to_contain_text("No values")
    number = page.locator(".column").filter(has_text=PREFIX + "large").get_attribute("data-column")
    assert not [url for url in page.watch.requests if f"/columns/{number}?" in url]


def test_matrices_are_heat_maps_with_a_scale(page, server):
    open_table(page, server.dashboard_url, "values")
    heat = column_of(page, PREFIX + "heat")
    canvas = heat.locator("canvas.heat")
    expect(heat).to_contain_text("\u22121")
    colors = canvas.evaluate("node => [...node.getContext('2d').getImageData(0, 0, node.width, node.height).data]")
    colors = np.array(colors).reshape(6, 8, 4)
    assert colors.shape[:2] == VALUES["heat"].shape
    assert tuple(colors[0, 0, :3]) != tuple(colors[-1, -1, :3])
    canvas.hover(position={"x": 2, "y": 2})
    expect(heat.locator(".readout")).to_have_text("0, 0: -1")


def test_series_are_lines_that_the_arrow_keys_read(page, server):
    open_table(page, server.dashboard_url, "series")
    reward = column_of(page, PREFIX + "reward")
    done = column_of(page, PREFIX + "done")
    expect(reward.locator("path.line")).to_have_count(1)
    expect(reward.locator(".scale")).to_contain_text("5.5")
    plot = reward.get_by_role("slider")
    plot.focus()
    page.keyboard.press("End")
    expect(plot).to_have_attribute("aria-valuetext", "11: 5.5")
    # The lines of an item stand below each other, and are read together.
    expect(done.locator(".readout")).to_have_text("11: true")
    boxes = [section.locator(".plot").bounding_box() for section in (reward, done)]
    assert boxes[0]["x"] == boxes[1]["x"]
    assert boxes[0]["width"] == boxes[1]["width"]


def test_a_vector_of_one_step_is_no_series(page, server):
    open_table(page, server.dashboard_url, "values")
    state = column_of(page, PREFIX + "state")
    expect(state.locator("td")).to_have_text(["0.5", "-1.25", "3", "0"])
    embedding = column_of(page, PREFIX + "embedding")
    expect(embedding.locator("rect")).to_have_count(len(VALUES["embedding"]))
    expect(embedding).to_contain_text("elements 0 to 31")
    assert page.locator(".column path.line").count() == 0


def test_a_ragged_column_shows_its_length_and_those_of_the_list(page, server):
    open_table(page, server.dashboard_url, "ragged")
    tokens = column_of(page, PREFIX + "tokens")
    newest = LENGTHS[-1]
    expect(tokens.locator(".lengths")).to_contain_text(f"Ragged: {newest} rows here, 1 to 3 rows in the 3 listed items")
    expect(tokens.locator(".lengths rect")).to_have_count(len(LENGTHS))
    expect(tokens).to_contain_text(f"1 \u00d7 {newest}")


def test_keys_are_copied(page, server):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_table(page, server.dashboard_url, "few")
    key = page.locator(".item-list tbody button").first.inner_text()
    page.get_by_role("button", name="Copy key").click()
    expect(page.locator(".item-detail > header button")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == key
    # As over plain HTTP from another machine.
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.locator(".item-list tbody button").nth(1).click()
    page.locator(".item-detail > header button").click()
    expect(page.locator(".item-detail > header button")).to_have_text("Copied")


def test_items_are_found_by_order_and_key(page, server):
    open_table(page, server.dashboard_url, "few")
    priorities = page.locator(".item-list tbody td:nth-child(2)")
    newest, oldest = [str(value) for value in range(NUM_FEW, 0, -1)], [str(value + 1) for value in range(NUM_FEW)]
    expect(priorities).to_have_text(newest)
    page.get_by_role("button", name="Oldest").click()
    expect(priorities).to_have_text(oldest)
    page.get_by_role("button", name="Highest priority").click()
    expect(priorities).to_have_text(newest)
    key = page.locator(".item-list tbody button").nth(2).inner_text()
    page.get_by_label("Key of an item").fill(key)
    page.keyboard.press("Enter")
    expect(priorities).to_have_text([newest[2]])
    expect(page.locator(".item-detail h3")).to_have_text(f"Item {key}")
    page.get_by_label("Key of an item").fill("seven")
    page.keyboard.press("Enter")
    expect(page.locator(".items-panel .state")).to_contain_text("Not a key")


def test_an_item_that_is_gone_says_so(page, server):
    client = reverb.Client(f"localhost:{server.port}")
    client.insert(np.float32(1), {"leaving": 1.0})
    open_table(page, server.dashboard_url, "leaving")
    key = page.locator(".item-list tbody button").inner_text()
    client.reset("leaving")
    page.watch.allow("404")
    page.get_by_label("Key of an item").fill(key)
    page.get_by_role("button", name="Find").click()
    expect(page.locator(".items-panel .state").first).to_contain_text("No such item")
    page.get_by_role("button", name="Newest").click()
    expect(page.locator(".items-panel .state").first).to_contain_text("The table is empty")


def test_a_look_changes_no_counts(page, server):
    client = reverb.Client(f"localhost:{server.port}")
    counts = lambda: (num_inserts(client, "few"), num_samples(client, "few"), info_of(client, "few").num_unique_samples)  # noqa: E731
    before = counts()
    open_table(page, server.dashboard_url, "few")
    column_of(page, PREFIX + "0")
    assert counts() == before


def test_histograms_are_marked_as_estimates_if_they_are(open_page, server):
    page = open_page()
    open_table(page, server.dashboard_url, "many")
    expect(histogram_of(page, "priority")).to_contain_text(re.compile(r"estimate from 6\d,\d{3} of 70,000 items"))
    page = open_page()
    open_table(page, server.dashboard_url, "few")
    expect(histogram_of(page, "priority")).to_contain_text(f"all {NUM_FEW} items")
    page = open_page()
    open_table(page, server.dashboard_url, "drawn")
    expect(histogram_of(page, "sample_age_seconds")).to_contain_text(f"{NUM_DRAWS} draws since the server started")


def test_the_bars_of_a_histogram_are_a_table_too(page, server):
    open_table(page, server.dashboard_url, "drawn")
    for field, total in (("priority", NUM_FEW), ("times_sampled", NUM_FEW), ("sample_age_seconds", NUM_DRAWS)):
        figure = histogram_of(page, field)
        figure.get_by_text("Values").click()
        counts = [int(text) for text in figure.locator("tbody td").all_inner_texts()]
        assert sum(counts) == total
        assert len(counts) == figure.locator("rect").count()
        slider = figure.get_by_role("slider")
        slider.focus()
        page.keyboard.press("End")
        assert f": {counts[-1]} " in slider.get_attribute("aria-valuetext")


def test_an_empty_table_says_so(page, server):
    open_table(page, server.dashboard_url, "none")
    expect(page.locator(".items-panel .state").first).to_contain_text("The table is empty")
    expect(histogram_of(page, "sample_age_seconds")).to_contain_text("No item has been drawn yet")


def test_items_fit_a_phone(open_page, server):
    for name in ("pictures", "values"):
        page = open_page(width=390, height=844, is_mobile=True, has_touch=True)
        page.goto(f"{server.dashboard_url}/#/tables/{0 if name == 'pictures' else 1}")
        for column in PICTURES if name == "pictures" else ("heat", "text", "input_ids", "exact", "embedding"):
            column_of(page, PREFIX + column)
        assert has_no_horizontal_scroll(page)
