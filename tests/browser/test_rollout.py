"""A rollout against a trainer, from the choice of the files to the token."""

import re
import shutil
from pathlib import Path

from dashboard import Dashboard
from library.rollout.rollout_rows import SAMPLES
from playwright.sync_api import expect


def test_files_are_chosen_and_lead_to_the_token_that_left_the_noise(
    dashboard: Dashboard, dumps: Path
) -> None:
    shutil.copytree(SAMPLES, dumps / "rollout", dirs_exist_ok=True)
    page = dashboard.page
    dashboard.open("/")
    page.locator("nav a[href='/rollout']").click()
    page.locator(".rollout-files").get_by_role("link", name="rollout", exact=True).click()
    page.locator(".rollout-files li", has_text="shifted.jsonl").locator("a.button").last.click()
    page.locator(".rollout-files li", has_text="rollout.jsonl").locator("a.button").first.click()
    expect(page.locator("#finding")).to_contain_text(re.compile(r"\b20\b.*\b2\b"))
    expect(page.locator("#rollout-chart")).to_have_attribute("data-drawn", "yes")
    page.get_by_role("link", name="2", exact=True).click()
    page.wait_for_url(re.compile("/rollout/2"))
    expect(page.locator("#sequence-chart")).to_have_attribute("data-drawn", "yes")
    page.locator(".page-head a").click()
    expect(page.locator("#t20")).to_be_in_viewport()
    page.locator("a.button[href^='/new']").click()
    expect(page.locator("[name=token]")).to_have_value("20")


def test_a_cell_of_the_map_leads_to_its_sequence(dashboard: Dashboard, dumps: Path) -> None:
    shutil.copytree(SAMPLES, dumps / "rollout", dirs_exist_ok=True)
    page = dashboard.page
    folder = dumps / "rollout"
    dashboard.open(f"/rollout?rollout={folder}/rollout.jsonl&trainer={folder}/not_finite.jsonl")
    expect(page.locator("#rollout-chart")).to_have_attribute("data-drawn", "yes")
    chart, words = page.locator("#rollout-chart .nsewdrag"), page.locator("#rollout-chart .hovertext")
    box = chart.bounding_box()
    assert box is not None
    for step in range(100):  # what is drawn once more, as of another width, forgets where the mouse is
        chart.hover(position={"x": box["width"] * 0.9, "y": 8 + step % 2})
        if words.count():
            break
        page.wait_for_timeout(100)
    expect(words).to_be_visible()
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url(re.compile("/rollout/4"))
    expect(page.locator("h1")).to_contain_text("4")
