"""The live page of a server with tokens: it signs in, and shows what the role of its token may see."""

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from behaviour_support import make_table
from page_support import PATIENCE_MS, histogram_of
from playwright.sync_api import expect
from token_support import token_of, write_tokens

import reverb

pytestmark = pytest.mark.live

ROLES = {"learner": "view", "actors": "use"}
# Browsers note each refusal, also one that the page expects.
REFUSED = r"401|429"


@pytest.fixture
def path(tmp_path):
    return write_tokens(tmp_path / "tokens.toml", **ROLES)


@pytest.fixture
def server(path):
    server = reverb.Server([make_table()], tokens=reverb.Tokens.from_file(path))
    reverb.Client(f"localhost:{server.port}").insert([np.float32(0.5)], {"table": 1.0})
    yield server
    server.stop()


@pytest.fixture
def signing(page, server):
    """The page of the server, which asks for a token."""
    page.watch.allow(REFUSED)
    page.goto(f"{server.dashboard_url}/#/tables/0")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible(timeout=PATIENCE_MS)
    return page


def sign_in(page, token):
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()


def assert_accessible(page):
    results = Axe().run(page)
    assert results.violations_count == 0, results.generate_report()


def test_the_page_asks_for_a_token_and_says_when_it_is_wrong(signing, server):
    why = signing.get_by_role("alert")
    expect(why).to_have_text("This server needs a token.")
    expect(signing.locator(".sign-in")).to_contain_text("a program of any of its users that listens at this port")
    assert signing.get_by_label("Token").get_attribute("type") == "password"
    assert_accessible(signing)
    sign_in(signing, "rvb_wrong-0123456789-0123456789")
    expect(why).to_contain_text("does not know this token", timeout=PATIENCE_MS)
    expect(signing.get_by_label("Token")).to_be_focused()
    expect(signing.get_by_label("Token")).to_have_value("")
    assert_accessible(signing)
    sign_in(signing, token_of("actors"))
    expect(signing.locator(".server-facts")).to_contain_text("as actors (use)", timeout=PATIENCE_MS)
    expect(signing.locator(".item-list tbody button")).to_have_count(1, timeout=PATIENCE_MS)
    expect(signing.locator(".sign-in")).to_have_count(0)


def test_a_token_of_role_view_shows_numbers_and_no_items(signing, server):
    sign_in(signing, token_of("learner"))
    expect(signing.locator(".server-facts")).to_contain_text("as learner (view)", timeout=PATIENCE_MS)
    expect(signing.locator(".items-panel")).to_contain_text("needs role use", timeout=PATIENCE_MS)
    expect(histogram_of(signing, "priority")).to_be_visible(timeout=PATIENCE_MS)
    assert_accessible(signing)
    assert not [url for url in signing.watch.requests if "/tables/0/items" in url]


def test_the_page_names_the_token_of_each_client_to_role_view(signing, server):
    client = reverb.Client(f"ipv4:127.0.0.1:{server.port}", token=token_of("actors"), allow_insecure=True)
    client.server_info()
    sign_in(signing, token_of("learner"))
    signing.goto(f"{server.dashboard_url}/#/")
    clients = signing.get_by_label("Clients, those that are stuck first")
    expect(clients).to_contain_text("token actors (use)", timeout=PATIENCE_MS)
    assert_accessible(signing)


def test_the_token_is_stored_nowhere_and_a_reload_asks_again(signing, server):
    sign_in(signing, token_of("actors"))
    expect(signing.locator(".item-list tbody button")).to_have_count(1, timeout=PATIENCE_MS)
    stored = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href, history.state])"
    assert "rvb_" not in signing.evaluate(stored)
    assert "rvb_" not in signing.content()
    assert not [url for url in signing.watch.requests if "rvb_" in url]
    signing.reload()
    expect(signing.get_by_role("alert")).to_have_text("This server needs a token.", timeout=PATIENCE_MS)


def test_a_token_that_is_removed_ends_what_the_page_shows(signing, server, path):
    sign_in(signing, token_of("actors"))
    expect(signing.locator(".item-list tbody button")).to_have_count(1, timeout=PATIENCE_MS)
    write_tokens(path, learner="view")
    server.reload()
    expect(signing.get_by_role("alert")).to_contain_text("does not know the token any more", timeout=PATIENCE_MS)
    expect(signing.locator(".item-list")).to_have_count(0)
    sign_in(signing, token_of("learner"))
    expect(signing.locator(".server-facts")).to_contain_text("as learner (view)", timeout=PATIENCE_MS)


def test_a_role_that_becomes_lesser_hides_items(signing, server, path):
    sign_in(signing, token_of("actors"))
    expect(signing.locator(".item-list tbody button")).to_have_count(1, timeout=PATIENCE_MS)
    write_tokens(path, actors="view")
    server.reload()
    expect(signing.locator(".items-panel")).to_contain_text("needs role use", timeout=PATIENCE_MS)
    expect(signing.locator(".item-list")).to_have_count(0)


def test_over_http_from_elsewhere_no_token_is_taken(page, server):
    page.watch.allow(REFUSED)
    elsewhere = "http://replay.example"

    def forward(route):
        there = route.request.url.replace(elsewhere, server.dashboard_url)
        route.fulfill(response=route.fetch(url=there))

    page.route(f"{elsewhere}/**", forward)
    page.goto(elsewhere)
    expect(page.locator(".sign-in")).to_contain_text("takes no token. Open it over https", timeout=PATIENCE_MS)
    expect(page.locator(".sign-in input")).to_have_count(0)
    assert_accessible(page)
