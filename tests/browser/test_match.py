"""What is promised of the Match page with a mouse, with keys alone, and with somebody else at the set."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dashboard import Dashboard
from playwright.sync_api import APIRequestContext, Browser, Locator, Page, Route, expect
from working import wait_until

from firstdrift.wording.text import texts

MLP, FEED_FORWARD = (
    f"Module.model.layers.{{}}.{name}.LlamaMLP.forward.0" for name in ("mlp", "feed_forward")
)
PROJECTION = "Module.module.model.layers.0.self_attn.{}_proj.Linear.forward.0"
FUSED = "Module.0.module.module.decoder.layers.0.self_attention.linear_qkv.ColumnParallelLinear.forward.0"


def compare(request: APIRequestContext, golden: Path, target: Path, **options: object) -> str:
    """Compare two dumps as a script would; give the address of their Match page."""
    choice = {"golden": str(golden), "target": str(target)} | options
    made = request.post("/api/v1/comparisons", data=choice).json()["id"]
    wait_until(lambda: request.get(f"/api/v1/comparisons/{made}").json()["state"] == "done")
    return f"/c/{made}/s/0/match"


@pytest.fixture(scope="module")
def match(browser: Browser, address: str, dumps: Path) -> str:
    """The page of the renamed dumps, compared by name alone."""
    context = browser.new_context(base_url=address)
    renamed = dumps / "renamed"
    made = compare(context.request, renamed / "golden", renamed / "target", structure=False)
    context.close()
    return made


@pytest.fixture
def second(browser: Browser, address: str) -> Iterator[Page]:
    """Somebody else's browser."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, base_url=address)
    context.set_default_timeout(30_000)
    other = Dashboard(context.new_page(), address)
    yield other.page
    context.close()
    assert other.complaints == []


def test_sides_without_rows_have_no_frame(dashboard: Dashboard, page: Page) -> None:
    dashboard.open("/c/1")
    dashboard.wait_for_comparison()
    dashboard.open("/c/1/s/0/match")
    expect(page.locator(".pane .empty")).to_have_count(2)
    assert page.evaluate("document.activeElement.matches('.pane')") is False


def node(page: Page, side: str, name: str) -> Locator:
    return page.locator(f".pane.of-{side} .node-row[title$='{name}']")


def count(page: Page, side: str) -> Locator:
    return page.locator(f"#count-{side}")


def picked(page: Page) -> Locator:
    return page.locator("#match-picked li .name")


def version(page: Page) -> Locator:
    return page.locator("#match-state [data-version]")


def preview(page: Page) -> Locator:
    return page.locator("#match-effect:not([aria-busy]) .says")


def test_two_clicks_match_two_nodes_after_a_preview_and_z_takes_it_back(
    dashboard: Dashboard, page: Page, match: str
) -> None:
    dashboard.open(match)
    expect(count(page, "golden")).to_have_attribute("data-free", "46")
    node(page, "golden", MLP.format(1)).click()
    node(page, "target", FEED_FORWARD.format(1)).click()
    expect(preview(page)).to_have_attribute("data-more", "51")
    expect(preview(page)).to_have_attribute("data-says", "same-first")
    expect(preview(page)).to_contain_text("model.layers.2.mlp.down_proj")
    page.locator("[data-apply]").click()
    expect(picked(page)).to_have_count(0)
    expect(count(page, "golden")).to_have_attribute("data-free", "23")
    expect(page).to_have_url(re.compile(r"match\?set=\d+$"))
    expect(version(page)).to_have_attribute("data-edits", "1")
    tree = page.locator("[data-results]")
    assert page.request.get(tree.get_attribute("href") or "").ok
    page.keyboard.press("z")
    expect(count(page, "golden")).to_have_attribute("data-free", "46")
    page.keyboard.press("y")
    expect(count(page, "golden")).to_have_attribute("data-free", "23")
    dashboard.settle()


def test_keys_alone_find_a_node_choose_a_suggestion_and_match(
    dashboard: Dashboard, page: Page, match: str
) -> None:
    dashboard.open(match)
    expect(page.locator(".pane.of-golden")).to_be_focused()
    page.keyboard.press("Home")
    page.keyboard.press("u")
    expect(page.locator(".of-golden .is-active")).to_have_attribute("title", MLP.format(1))
    page.keyboard.press("Space")
    page.keyboard.press("s")
    expect(page.locator(".suggestion[aria-current]")).to_contain_text(
        texts("en")["matching.reason.parents_correspond"]
    )
    expect(node(page, "target", FEED_FORWARD.format(1))).to_have_attribute("aria-selected", "true")
    page.keyboard.press("s")
    expect(picked(page).last).not_to_have_text(FEED_FORWARD.format(1))
    page.keyboard.press("S")
    expect(picked(page).last).to_have_text(FEED_FORWARD.format(1))
    page.keyboard.press("Escape")
    expect(picked(page)).to_have_count(0)
    page.keyboard.press("Space")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".pane.of-target")).to_be_focused()
    page.keyboard.press("Home")
    page.keyboard.press("u")
    page.keyboard.press("Space")
    expect(picked(page)).to_have_text([MLP.format(1), FEED_FORWARD.format(1)])
    preview(page).wait_for()
    page.keyboard.press("Enter")
    expect(count(page, "target")).to_have_attribute("data-free", "27")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()


def test_who_moves_on_is_not_taken_back_when_a_suggestion_arrives_late(
    dashboard: Dashboard, page: Page, match: str
) -> None:
    late: list[Route] = []

    def hold(route: Route) -> None:
        late.append(route)

    dashboard.open(match)
    active = page.locator(".of-golden .is-active")
    page.keyboard.press("Home")
    page.keyboard.press("u")
    expect(active).to_have_attribute("title", MLP.format(1))
    page.route(re.compile("/rows.*place_of="), hold)
    page.keyboard.press("s")
    expect(picked(page)).to_have_count(2)
    page.keyboard.press("Home")
    expect(active).to_have_attribute("data-place", "0")
    while len(late) < 2:
        page.wait_for_timeout(50)
    for route in late:
        with page.expect_response(route.request.url):
            route.continue_()
    page.wait_for_function("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    expect(active).to_have_attribute("data-place", "0")


def test_one_node_is_dragged_onto_the_other(dashboard: Dashboard, page: Page, match: str) -> None:
    dashboard.open(match)
    node(page, "target", FEED_FORWARD.format(3)).drag_to(node(page, "golden", MLP.format(3)))
    expect(picked(page)).to_have_text([MLP.format(3), FEED_FORWARD.format(3)])
    expect(preview(page)).to_have_attribute("data-more", "51")
    page.reload()
    expect(picked(page)).to_have_text([MLP.format(3), FEED_FORWARD.format(3)])
    dashboard.settle()


def test_a_match_of_somebody_else_is_seen_and_what_is_picked_stays_picked(
    dashboard: Dashboard, page: Page, second: Page, match: str
) -> None:
    made = page.request.post(f"{match}/begin", form={"name": "ours"}, headers={"accept": "application/json"})
    ours = f"{match}?set={made.json()['set']}"
    dashboard.open(ours)
    second.goto(ours)
    node(second, "golden", MLP.format(3)).click()
    node(second, "target", FEED_FORWARD.format(3)).click()
    preview(second).wait_for()
    node(page, "golden", MLP.format(1)).click()
    node(page, "target", FEED_FORWARD.format(1)).click()
    preview(page).wait_for()
    page.keyboard.press("m")
    expect(second.locator(".toast")).to_contain_text(MLP.format(1))
    expect(count(second, "golden")).to_have_attribute("data-free", "23")
    expect(picked(second)).to_have_text([MLP.format(3), FEED_FORWARD.format(3)])
    expect(node(second, "golden", MLP.format(3))).to_have_attribute("aria-selected", "true")
    preview(second).wait_for()
    second.keyboard.press("m")
    expect(count(page, "golden")).to_have_attribute("data-free", "0")
    dashboard.settle()


def test_a_conflict_is_explained_and_what_is_picked_is_matched_on_top(
    dashboard: Dashboard, page: Page, match: str
) -> None:
    begun = page.request.post(f"{match}/begin", form={"name": "fast"}, headers={"accept": "application/json"})
    number = begun.json()["set"]
    dashboard.open(f"{match}?set={number}")
    # As if the others' change came between two looks.
    page.route("**/match/state?*", lambda route: route.abort() if not told else route.continue_())
    told: list[str] = []
    node(page, "golden", MLP.format(3)).click()
    node(page, "target", FEED_FORWARD.format(3)).click()
    preview(page).wait_for()
    other = {"kind": "match", "golden": [MLP.format(1)], "target": [FEED_FORWARD.format(1)]}
    page.request.post(f"/api/v1/match-sets/{number}/edits", data={"version": 0, "edits": [other]})
    told.append("from now on")
    page.keyboard.press("m")
    expect(page.locator("#problem")).to_contain_text(MLP.format(1))
    expect(picked(page)).to_have_text([MLP.format(3), FEED_FORWARD.format(3)])
    changed = page.locator("#match-effect:not([aria-busy]) [data-count=unmatched_golden_nodes]")
    expect(changed).to_contain_text(re.compile(r"23\s*0"))
    page.keyboard.press("m")
    expect(count(page, "golden")).to_have_attribute("data-free", "0")
    dashboard.complaints.clear()  # the browser has logged the answer 409, and the requests stopped above


def test_two_viewers_of_different_sets_do_not_disturb_each_other(
    dashboard: Dashboard, page: Page, second: Page, match: str
) -> None:
    dashboard.open(match)
    second.goto(match)
    for window, at in ((page, 1), (second, 3)):
        node(window, "golden", MLP.format(at)).click()
        node(window, "target", FEED_FORWARD.format(at)).click()
        preview(window).wait_for()
    for window in (page, second):
        window.keyboard.press("m")
    for window, left in ((page, 3), (second, 1)):
        expect(count(window, "golden")).to_have_attribute("data-free", "23")
        expect(node(window, "golden", MLP.format(left))).to_be_visible()
        expect(version(window)).to_have_attribute("data-edits", "1")
    assert page.url != second.url
    assert page.locator("#set-name").text_content() != second.locator("#set-name").text_content()
    dashboard.settle()


def test_what_is_clicked_while_rows_are_made_anew_is_picked(
    dashboard: Dashboard, page: Page, dumps: Path, unpacked: Callable[[str], Path]
) -> None:
    pair = shutil.copytree(unpacked("msprobe/qwen2_layermap_stat_mix"), dumps / "anew")
    dashboard.open(compare(page.request, pair / "golden", pair / "target", structure=False))
    search, row = (
        page.locator("input[name=find_golden]:visible"),
        node(page, "golden", PROJECTION.format("q")),
    )
    with page.expect_response(lambda response: "/match/rows" in response.url):
        search.fill("layers.0.self_attn.")
    row.hover()
    search.fill("layers.1.self_attn.")
    page.mouse.down()
    expect(row).to_have_count(0)
    page.mouse.up()
    expect(picked(page)).to_have_count(1)


def test_three_projections_are_matched_with_the_one_they_were_fused_into(
    dashboard: Dashboard, page: Page, dumps: Path, unpacked: Callable[[str], Path]
) -> None:
    fused = shutil.copytree(unpacked("msprobe/qwen2_layermap_stat_mix"), dumps / "fused")
    dashboard.open(compare(page.request, fused / "golden", fused / "target", structure=False))
    page.locator("input[name=find_golden]:visible").fill("layers.0.self_attn.")
    page.locator("input[name=find_target]:visible").fill("layers.0.self_attention")
    for letter in "qkv":
        node(page, "golden", PROJECTION.format(letter)).click(modifiers=["Control"])
    node(page, "target", FUSED).click()
    expect(picked(page)).to_have_count(4)
    expect(preview(page)).to_have_attribute("data-more", re.compile("[1-9]"))
    page.locator("[data-says=made] summary").click()
    expect(page.locator(".matches li").first).to_contain_text(", ".join(map(PROJECTION.format, "qkv")))
    page.keyboard.press("m")
    expect(page.locator("[data-state=done]")).to_be_visible(timeout=30_000)
    expect(node(page, "golden", PROJECTION.format("q"))).to_have_count(0)
    page.locator("label.chip:has([value=all])").click()
    joined = page.locator(".pane.of-golden .is-matched:not(.is-backward)", has_text="q_proj, k_proj, v_proj")
    expect(joined).to_be_visible()
    joined.click()
    expect(picked(page)).to_have_count(3)
    dashboard.settle()


def test_a_file_is_read_in_and_the_match_page_is_reached_from_the_tree(
    dashboard: Dashboard, page: Page, match: str, tmp_path: Path
) -> None:
    dashboard.open(match.replace("/match", "/tree?verdict=unmatched"))
    page.locator("#panel a[href*='/match?']").click()
    expect(picked(page)).to_have_text([MLP.format(1)])
    file = tmp_path / "layers.yaml"
    file.write_text("TopLayer:\n  model.layers.1.mlp: model.layers.1.feed_forward\n")
    page.locator("#files summary").click()
    too_large = tmp_path / "large.yaml"
    too_large.write_bytes(b"#" * (2**24 + 1))
    page.locator("#import-file").set_input_files(too_large)
    expect(page.locator("#problem")).to_contain_text("large.yaml")
    expect(page.locator("#import textarea")).to_have_value("")
    page.locator("#import-file").set_input_files(file)
    expect(page.locator("#import textarea")).to_have_value(file.read_text())
    page.locator("#import button").click()
    expect(page).to_have_url(re.compile(r"set=\d+&golden="))
    expect(version(page)).to_have_attribute("data-version", "1")
    expect(picked(page)).to_have_text([MLP.format(1)])
    dashboard.settle()
