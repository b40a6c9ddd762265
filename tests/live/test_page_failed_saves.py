"""The live page of a server whose saves fail."""

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
    state, notices = page.locator(".state-word"), page.locator("#notices")
    expect(state).to_have_text("Serving", timeout=PATIENCE_MS)
    expect(notices).not_to_contain_text("save failed")
    shutil.move(kept, tmp_path / "away")
    kept.write_text("")
    with pytest.raises(reverb.errors.StorageError):
        client.checkpoint()
    expect(state).to_have_text("Serving, saves fail", timeout=PATIENCE_MS)
    expect(notices).to_contain_text("The latest save failed: cannot ", timeout=PATIENCE_MS)
    assert notices.bounding_box()["y"] < page.locator("#main").bounding_box()["y"]
    # Also beside a single table.
    page.goto(f"{server.dashboard_url}/#/tables/0")
    expect(notices).to_contain_text("The latest save failed", timeout=PATIENCE_MS)
    kept.unlink()
    shutil.move(tmp_path / "away", kept)
    client.checkpoint()
    expect(state).to_have_text("Serving", timeout=PATIENCE_MS)
    expect(notices.get_by_text("save failed")).to_be_hidden(timeout=PATIENCE_MS)
    server.stop()
