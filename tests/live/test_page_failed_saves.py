"""The live page of a server whose saves fail."""

import re
import shutil

import pytest
from page_support import PATIENCE_MS
from playwright.sync_api import expect

import reverb

pytestmark = pytest.mark.live


def test_a_failed_save_stands_above_everything_until_one_succeeds(page, tmp_path):
    kept = tmp_path / "kept"
    server = reverb.Server(
        [reverb.Table.queue("queue", 3)], checkpointer=reverb.checkpointers.DefaultCheckpointer(kept)
    )
    client = server.localhost_client()
    client.checkpoint()
    page.goto(server.dashboard_url)
    verdict, facts = page.locator(".verdict"), page.locator(".verdict-facts")
    expect(facts).to_contain_text(re.compile(r"Saved .* ago"), timeout=PATIENCE_MS)
    assert verdict.get_attribute("data-level") in ("good", "quiet")
    shutil.move(kept, tmp_path / "away")
    kept.write_text("")
    with pytest.raises(reverb.errors.StorageError):
        client.checkpoint()
    expect(verdict).to_have_attribute("data-level", "warning", timeout=PATIENCE_MS)
    expect(verdict.locator(".verdict-line")).to_contain_text("save failed")
    # The folder is gone, and what was in it.
    expect(facts).to_contain_text("a restart would lose everything", timeout=PATIENCE_MS)
    assert page.title().startswith("\u25cf ")
    assert verdict.bounding_box()["y"] < page.locator("#main").bounding_box()["y"]
    # Also beside a single table.
    page.goto(f"{server.dashboard_url}/#/tables/0")
    expect(verdict.locator(".verdict-line")).to_contain_text("save failed", timeout=PATIENCE_MS)
    kept.unlink()
    shutil.move(tmp_path / "away", kept)
    client.checkpoint()
    expect(verdict.get_by_text("save failed")).to_have_count(0, timeout=PATIENCE_MS)
    assert verdict.get_attribute("data-level") in ("good", "quiet")
    server.stop()
