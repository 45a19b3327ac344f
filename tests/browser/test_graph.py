"""The graph of a slice: boxes in boxes, both runs in step."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from dashboard import Dashboard
from playwright.sync_api import Browser, Locator, Page, expect

from firstdrift_frontend.languages import LANGUAGES

GRAPH = "/c/1/s/0/graph"
PNG = b"\x89PNG\r\n\x1a\n"
FIND_BARRIERS = """async () => {
  const runOnly = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
  const { violations } = await axe.run(document, { runOnly, resultTypes: ["violations"] });
  const told = (nodes) => nodes.map(({ html }) => html.slice(0, 200)).join(" | ");
  return violations.map(({ id, nodes }) => `${id}: ${told(nodes)}`);
}"""
IS_ABOVE = """top => {
  const side = document.querySelector("[aria-selected=true] .side");
  return Math.abs(side.getBoundingClientRect().y - top) < 2;
}"""
PLACE = "element => { const { x, y } = element.getBoundingClientRect(); return [x, y]; }"


@pytest.fixture
def selected(dashboard: Dashboard, page: Page) -> Locator:
    """The graph of the first comparison, and its selected box."""
    dashboard.open("/c/1")
    dashboard.wait_for_comparison()
    dashboard.open(GRAPH)
    return page.locator('[role="treeitem"][aria-selected="true"]')


def box(page: Page, label: str) -> Locator:
    """The first box of a name that is on the screen, or near it."""
    return page.locator(f'[role="treeitem"][aria-label^="{label},"]').first


def test_it_opens_at_the_first_bad_node_on_both_sides(page: Page, selected: Locator) -> None:
    expect(selected).to_have_class(re.compile("v-error"))
    expect(selected).to_be_in_viewport()
    expect(selected).to_be_focused()
    expect(selected.locator(".side")).to_have_count(2)
    row = selected.get_attribute("data-row")
    expect(page.locator(f'#panel article[data-node="{row}"]')).to_be_visible()
    expect(page.locator("#panel .statistics tbody").first).to_be_visible()
    assert page.request.get("/api/v1/comparisons/1/slices/0/rows").json()["selected"] == int(row or -1)
    golden, target = (selected.locator(f".side.{side}").evaluate(PLACE) for side in ("golden", "target"))
    assert golden[1] == target[1], "both runs are in step"
    assert golden[0] < target[0]


def test_enter_opens_and_closes_a_module_and_the_address_says_so(page: Page, selected: Locator) -> None:
    page.keyboard.press("Escape")
    module = selected.get_attribute("data-row")
    expect(selected).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Enter")
    expect(selected).to_have_attribute("aria-expanded", "false")
    expect(selected).to_have_attribute("data-row", module or "")
    expect(selected).to_be_focused()
    page.wait_for_url(re.compile(rf"row={module}&"))
    page.reload()
    expect(selected).to_have_attribute("data-row", module or "")
    page.keyboard.press("Enter")
    expect(selected).to_have_attribute("aria-expanded", "true")
    opened = re.search("open=([0-9.]*)", page.url)
    assert opened is not None
    assert module in opened[1].split(".")
    page.keyboard.press("ArrowDown")
    expect(selected).to_have_attribute("aria-level", str(int(opened[1].count(".")) + 2))


def test_a_module_that_was_never_open_is_fetched_once(page: Page, selected: Locator) -> None:
    expect(selected).to_be_visible()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/graph/layers" in request.url else None)
    closed = page.locator('[role="treeitem"][aria-expanded="false"]').first
    row = closed.get_attribute("data-row")
    module = page.locator(f'[data-row="{row}"]')
    for is_open in ("true", "false", "true"):
        module.locator(".holds").first.dispatch_event("click")
        expect(module).to_have_attribute("aria-expanded", is_open)
    assert len([address for address in asked if f"of={row}" in address]) == 1


def test_a_box_that_is_opened_stays_at_its_height(page: Page, selected: Locator) -> None:
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    expect(selected).to_have_attribute("aria-expanded", "false")
    before = selected.locator(".side.golden").evaluate(PLACE)
    page.keyboard.press("Enter")
    expect(selected).to_have_attribute("aria-expanded", "true")
    after = selected.locator(".side.golden").evaluate(PLACE)
    assert after[1] == pytest.approx(before[1], abs=1)
    expect(selected.locator(".side.target .name").first).to_be_in_viewport()


def test_arrows_follow_the_flow_of_data(page: Page, selected: Locator) -> None:
    for label, way, leads in (
        ("input_layernorm", "ArrowDown", "self_attn"),
        ("post_attention_layernorm", "ArrowDown", "mlp"),
        ("post_attention_layernorm", "ArrowUp", "Tensor.__add__"),
    ):
        expect(selected).to_be_focused()
        box(page, label).dispatch_event("click")
        expect(selected).to_have_attribute("aria-label", re.compile(f"^{label},"))
        page.keyboard.press(way)
        expect(selected).to_have_attribute("aria-label", re.compile(f"^{re.escape(leads)}"))


def test_n_and_p_go_from_bad_node_to_bad_node_and_back(
    dashboard: Dashboard, page: Page, selected: Locator
) -> None:
    visited = [selected.get_attribute("data-row") or ""]
    for _ in range(3):
        page.keyboard.press("n")
        expect(selected).not_to_have_attribute("data-row", visited[-1])
        expect(selected).to_be_in_viewport()
        expect(selected).to_have_class(re.compile("v-(error|warning)"))
        visited.append(selected.get_attribute("data-row") or "")
    for row in reversed(visited[:-1]):
        page.keyboard.press("p")
        expect(selected).to_have_attribute("data-row", row)
    dashboard.settle()


def test_what_one_side_lacks_leaves_a_gap_there(dashboard: Dashboard, page: Page) -> None:
    dashboard.open("/c/2")
    dashboard.wait_for_comparison()
    dashboard.open("/c/2/s/0/graph")
    selected = page.locator('[role="treeitem"][aria-selected="true"]')
    expect(selected).to_be_focused()
    page.keyboard.press("u")
    expect(selected).to_have_class(re.compile("is-alone"))
    expect(selected).to_be_in_viewport()
    expect(selected.locator(".side")).to_have_count(1)
    expect(selected.locator(".kind")).to_have_text(re.compile("only"))
    dash = selected.locator(".body").evaluate("body => getComputedStyle(body).strokeDasharray")
    page.keyboard.press("ArrowDown")
    assert dash is not None
    dashboard.settle()


def test_the_picture_is_moved_by_mouse_wheel_and_mini_map(page: Page, selected: Locator) -> None:
    expect(selected).to_be_focused()
    place = selected.locator(".side.golden")
    stage = page.locator("#stage").bounding_box()
    assert stage is not None
    middle = stage["x"] + stage["width"] / 2, stage["y"] + 60
    before = place.evaluate(PLACE)
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 40, middle[1] + 30, steps=4)
    page.mouse.up()
    moved = place.evaluate(PLACE)
    assert moved == pytest.approx([before[0] + 40, before[1] + 30], abs=2)
    page.mouse.wheel(0, 50)
    page.wait_for_function(IS_ABOVE, arg=moved[1] - 50)
    if page.locator("#minimap").is_hidden():
        page.locator("[data-graph=map]").click()
    page.locator("#minimap").click(position={"x": 75, "y": 8})
    expect(page.locator('[role="treeitem"][aria-level="1"]').first).to_be_in_viewport()


def test_names_of_the_sides_cover_no_box_and_the_mini_map_stays_as_it_was_left(
    page: Page, selected: Locator
) -> None:
    expect(selected).to_be_focused()
    stage, names = (page.locator(where).bounding_box() for where in ("#stage", "#sides"))
    assert stage is not None
    assert names is not None
    assert names["y"] + names["height"] <= stage["y"] + 0.5
    toggle, small = page.locator("[data-graph=map]"), page.locator("#minimap")
    assert small.is_visible() == (stage["width"] >= 900), "where there is room for it"
    for _ in range(2):
        was = small.is_visible()
        toggle.click()
        expect(small).to_be_visible(visible=not was)
        expect(toggle).to_have_attribute("aria-pressed", str(not was).lower())
        page.reload()
        expect(small).to_be_visible(visible=not was)


def test_statistics_fit_into_a_narrow_panel(page: Page, selected: Locator) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    expect(selected).to_be_focused()
    table = page.locator("#panel .scroll:has(.statistics)")
    expect(table.locator(".of-pair").first).to_be_visible()
    expect(table.locator("th.key").first).to_be_hidden()
    assert table.evaluate("table => table.scrollWidth <= table.clientWidth + 1")


def test_it_is_made_larger_and_smaller_and_shown_as_a_whole(page: Page, selected: Locator) -> None:
    expect(selected).to_be_focused()
    body = selected.locator(".body").first
    size = body.evaluate("body => body.getBoundingClientRect().width")
    page.keyboard.press("+")
    larger = body.evaluate("body => body.getBoundingClientRect().width")
    page.keyboard.press("-")
    page.keyboard.press("-")
    smaller = body.evaluate("body => body.getBoundingClientRect().width")
    assert smaller < size < larger
    page.keyboard.press("0")
    for item in page.locator('[role="treeitem"]').all():
        expect(item).to_be_in_viewport()


def test_boxes_that_are_far_from_the_screen_are_not_there(page: Page, selected: Locator) -> None:
    expect(selected).to_be_focused()
    rows = page.request.get("/api/v1/comparisons/1/slices/0/rows?unfold=all&count=1000").json()["rows"]
    page.goto(f"{GRAPH}?row={selected.get_attribute('data-row')}&open=0-{len(rows) - 1}")
    expect(selected).to_be_focused()
    shown = page.locator('[role="treeitem"]').count()
    assert 10 < shown < len(rows) / 2
    page.mouse.move(300, 300)
    for _ in range(8):
        page.mouse.wheel(0, 900)
    expect(page.locator('[role="treeitem"]').nth(5)).to_be_attached()
    expect(selected).to_be_attached()


def test_it_is_saved_as_a_picture_that_needs_nothing_else(
    page: Page, selected: Locator, tmp_path: Path
) -> None:
    expect(selected).to_be_focused()
    with page.expect_download() as saved:
        page.locator("[data-graph=svg]").click()
    assert saved.value.suggested_filename == "firstdrift-1-0.svg"
    saved.value.save_as(tmp_path / "graph.svg")
    text = (tmp_path / "graph.svg").read_text("utf-8")
    root = ET.fromstring(text)  # noqa: S314 (our own)
    shown = "".join(root.itertext())
    assert "down_proj" in shown
    assert "Golden" in shown
    for outside in ("var(", "class=", "href", "<style", "aria-"):
        assert outside not in text
    fills = {element.get("fill") for element in root.iter() if element.tag.endswith("rect")}
    assert len(fills - {None, "none"}) >= 3, "it has the colours of the page"
    with page.expect_download() as saved:
        page.locator("[data-graph=png]").click()
    saved.value.save_as(tmp_path / "graph.png")
    assert (tmp_path / "graph.png").read_bytes().startswith(PNG)
    assert (tmp_path / "graph.png").stat().st_size > 20_000


def test_tree_and_graph_lead_to_each_other_at_the_same_node(page: Page, selected: Locator) -> None:
    begun = selected.get_attribute("data-row")
    page.keyboard.press("n")
    expect(selected).not_to_have_attribute("data-row", begun or "")
    row = selected.get_attribute("data-row")
    page.keyboard.press("t")
    page.wait_for_url(re.compile("/tree"))
    in_tree = page.locator('[role="row"][aria-selected="true"]')
    expect(in_tree).to_have_attribute("data-row", row or "")
    page.keyboard.press("p")
    expect(in_tree).not_to_have_attribute("data-row", row or "")
    before = in_tree.get_attribute("data-row")
    page.locator("[data-tab=graph]").click()
    expect(selected).to_have_attribute("data-row", before or "")
    page.keyboard.press("o")
    page.wait_for_url(re.compile(f"/n/{before}$"))


def test_back_shows_what_was_seen_before(page: Page, selected: Locator) -> None:
    row = selected.get_attribute("data-row")
    page.keyboard.press("n")
    expect(selected).not_to_have_attribute("data-row", row or "")
    page.go_back()
    expect(selected).to_have_attribute("data-row", row or "")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_nobody_is_kept_out(browser: Browser, address: str, language: str, theme: str) -> None:
    context = browser.new_context(
        viewport={"width": 1280, "height": 800}, base_url=address, locale=language, color_scheme=theme
    )
    try:
        dashboard = Dashboard(context.new_page(), address)
        dashboard.open("/c/1")
        dashboard.wait_for_comparison()
        dashboard.open(GRAPH)
        page = dashboard.page
        expect(page.locator('[role="treeitem"][aria-selected="true"]')).to_be_focused()
        expect(page.locator("#panel article")).to_be_visible()
        page.evaluate(AXE_SCRIPT)
        assert page.evaluate(FIND_BARRIERS) == []
        assert dashboard.complaints == []
    finally:
        context.close()
