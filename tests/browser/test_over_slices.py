"""A node over slices: its picture leads to it elsewhere, and it stays chosen from slice to slice."""

import re
from pathlib import Path

import pytest
from dashboard import Dashboard
from playwright.sync_api import Browser, Page, expect


@pytest.fixture(scope="module")
def tokens(browser: Browser, address: str, dumps: Path) -> int:
    golden, target = (dumps / "tokens" / name for name in ("llama4_golden_fp32", "llama4_perturb_L2_T3"))
    with browser.new_context() as context:
        asked = {"golden": str(golden), "target": str(target)}
        return int(context.request.post(f"{address}/api/v1/comparisons", data=asked).json()["id"])


@pytest.fixture
def node(dashboard: Dashboard, page: Page, tokens: int) -> Page:
    """The page of the first bad node."""
    dashboard.open(f"/c/{tokens}")
    dashboard.wait_for_comparison()
    page.goto(f"/c/{tokens}/s/3/tree")
    page.locator('[role="row"][aria-selected="true"]').wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/s/3/n/\d+$"))
    return page


def test_points_and_keys_lead_to_the_node_in_other_slices(node: Page) -> None:
    name = node.locator("h1").inner_text()
    expect(node.locator(".picture .point")).to_have_count(8)
    expect(node.locator(".picture text.limit")).to_be_visible()
    node.keyboard.press("]")
    node.wait_for_url(re.compile(r"/s/4/n/\d+$"))
    expect(node.locator("h1")).to_have_text(name)
    node.keyboard.press("[")
    node.wait_for_url(re.compile(r"/s/3/n/\d+$"))
    point = node.locator(".picture .point").nth(6)
    point.focus()
    expect(point).to_be_focused()
    node.keyboard.press("Enter")
    node.wait_for_url(re.compile(r"/s/6/n/\d+$"))
    expect(node.locator("h1")).to_have_text(name)
    expect(node.locator(".picture .point[aria-current]")).to_have_count(1)


def test_the_selected_node_stays_selected_in_other_slices_of_the_tree(
    dashboard: Dashboard, page: Page, tokens: int
) -> None:
    dashboard.open(f"/c/{tokens}/s/3/tree")
    selected = page.locator('[role="row"][aria-selected="true"] .label')
    page.keyboard.press("ArrowDown")
    name = selected.get_attribute("title")
    assert name
    for key, slice_ in (("]", 4), ("]", 5), ("[", 4)):
        page.locator('[role="row"][aria-selected="true"]').focus()
        page.keyboard.press(key)
        page.wait_for_url(re.compile(rf"/s/{slice_}/tree"))
        expect(selected).to_have_attribute("title", name)
    page.locator("[data-goto]").select_option(index=7)
    page.wait_for_url(re.compile("/s/7/tree"))
    expect(selected).to_have_attribute("title", name)
