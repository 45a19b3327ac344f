"""What stands around every page of a comparison: the bar of its pages, and the side panel."""

import pytest
from dashboard import Dashboard
from playwright.sync_api import Page, expect

NAMES = ["overview", "tree", "graph", "node", "unmatched", "match", "rules", "share"]


def tabs(page: Page) -> list[tuple[str, float, float]]:
    """The pages of the bar with where they stand; the one that is open first in none."""
    found = page.locator(".tab-list > a")
    boxes = [one.bounding_box() for one in found.all()]
    names = found.evaluate_all("all => all.map((one) => one.dataset.tab)")
    return [(name, box["x"], box["y"]) for name, box in zip(names, boxes, strict=True) if box]


@pytest.fixture
def tree(dashboard: Dashboard, page: Page) -> Page:
    """The tree of a finished comparison, open."""
    dashboard.open("/c/1")
    dashboard.wait_for_comparison()
    dashboard.open("/c/1/s/0/tree")
    return page


def test_every_page_has_the_same_tabs_at_the_same_place(dashboard: Dashboard, tree: Page) -> None:
    row = tree.locator('[aria-selected="true"]').get_attribute("data-row")
    first = tabs(tree)
    assert [name for name, *_ in first] == NAMES
    for name in NAMES:
        tree.locator(f"[data-tab={name}]").click()
        expect(tree.locator(".tab-list [aria-current=page]")).to_have_attribute("data-tab", name)
        assert tabs(tree) == first
        expect(tree.locator(".for-files")).to_be_visible()
        dashboard.settle()
    # The node that was selected is led to from all of them.
    expect(tree.locator("[data-tab=node]")).to_have_attribute("href", f"/c/1/s/0/n/{row}")


def test_the_tabs_follow_the_selected_node(dashboard: Dashboard, tree: Page) -> None:
    tree.keyboard.press("Home")
    expect(tree.locator("[data-tab=node]")).to_have_attribute("href", "/c/1/s/0/n/0")
    expect(tree.locator("[data-tab=graph]")).to_have_attribute("href", "/c/1/s/0/graph?row=0")
    dashboard.open("/c/1/rules")
    expect(tree.locator("[data-tab=node]")).to_have_attribute("href", "/c/1/s/0/n/0")


def width(page: Page) -> float:
    box = page.locator("#panel").bounding_box()
    assert box
    return box["width"]


def test_the_side_panel_is_moved_by_keys_and_by_mouse_and_stays_so(dashboard: Dashboard, tree: Page) -> None:
    divider, usual = tree.locator("#divider"), width(tree)
    selected = tree.locator('[aria-selected="true"]').get_attribute("data-row")
    divider.focus()
    for _ in range(5):
        tree.keyboard.press("ArrowLeft")
    wider = width(tree)
    assert wider > usual + 50
    expect(tree.locator('[aria-selected="true"]')).to_have_attribute("data-row", selected or "")
    at = divider.bounding_box()
    assert at
    tree.mouse.move(at["x"] + 3, at["y"] + 200)
    tree.mouse.down()
    tree.mouse.move(at["x"] + 203, at["y"] + 200, steps=4)
    tree.mouse.up()
    assert abs(width(tree) - (wider - 200)) < 10
    moved = width(tree)
    dashboard.open("/c/1/s/0/graph")
    assert abs(width(tree) - moved) < 2
    tree.locator("#divider").dblclick()
    assert abs(width(tree) - usual) < 2


def test_the_side_panel_can_be_hidden(tree: Page) -> None:
    button, panel = tree.locator("[data-panel-toggle]"), tree.locator("#panel")
    button.press("Enter")
    expect(panel).to_be_hidden()
    expect(button).to_have_attribute("aria-expanded", "false")
    tree.reload()
    expect(panel).to_be_hidden()
    button.click()
    expect(panel).to_be_visible()


def test_charts_that_were_not_seen_are_drawn_for_a_printer(dashboard: Dashboard, page: Page) -> None:
    dashboard.open("/c/1")
    dashboard.wait_for_comparison()
    scatter = page.locator("#scatter")
    assert scatter.get_attribute("data-drawn") is None
    page.evaluate("window.print = () => { document.body.dataset.printed = scatter.dataset.drawn; }")
    page.keyboard.press("Control+p")
    expect(page.locator("body")).to_have_attribute("data-printed", "yes")
    dashboard.open("/c/1")
    assert scatter.get_attribute("data-drawn") is None
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    expect(scatter).to_have_attribute("data-drawn", "yes")


def test_what_is_counted_and_what_golden_calls_a_node_stays_whole_in_a_narrow_tree(
    dashboard: Dashboard, page: Page
) -> None:
    dashboard.open("/c/2")
    dashboard.wait_for_comparison()
    dashboard.open("/c/2/s/0/tree?fold=all")
    page.locator("#divider").focus()
    page.keyboard.press("Home")
    cut = page.evaluate("""() => [...document.querySelectorAll(".rollup > .verdict, .row > * > .verdict")]
      .filter((counter) => {
        const { left, right } = counter.getBoundingClientRect();
        const around = counter.closest("[role=gridcell]").getBoundingClientRect();
        return counter.offsetTop < 24 && (left < around.left - 1 || right > around.right + 1);
      }).map((counter) => counter.textContent)""")
    assert cut == []
    page.locator("#divider").dblclick()
    dashboard.open("/c/2/s/0/tree?unfold=all")
    names = page.locator(".golden-name:visible")
    expect(names.first).to_be_visible()
