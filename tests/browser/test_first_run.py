import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from dashboard import Dashboard
from messages import like
from playwright.sync_api import Page, Route, expect

from firstdrift.wording.text import word


def test_two_dumps_are_chosen_compared_and_followed_to_the_node_whose_address_can_be_sent(
    dashboard: Dashboard, page: Page, dumps: Path
) -> None:
    dashboard.open("/")
    page.locator("a[href='/new']").first.click()
    for side, name in (("golden", "llama4_golden_fp32"), ("target", "llama4_perturb_L2_T3")):
        listed = page.locator(f"#part-folder-{side}")
        folder = listed.get_by_role("link", name="tokens", exact=True)
        dump = listed.locator("li", has_text=name)
        folder.or_(dump).first.wait_for()  # the page may still be on its way
        if folder.count():  # the second side opens where the first was chosen
            folder.click()
        dump.locator(".choose-it").click()
        expect(page.locator(f"#{side}")).to_have_value(str(dumps / "tokens" / name))
        expect(page.locator(f"#part-said-{side}")).to_contain_text("msit-torch")
    expect(page.locator("#part-command")).to_contain_text(
        f"firstdrift compare {dumps}/tokens/llama4_golden_fp32"
    )
    page.locator(".submit button.primary").click()

    page.wait_for_url(re.compile(r"/c/\d+$"))
    dashboard.wait_for_comparison()  # the page keeps itself up to date
    expect(page.locator(".sentence")).to_contain_text(re.compile(like("finding.first_token")))
    page.get_by_role("figure").locator(".main-svg").first.wait_for()

    page.locator(".sentence a", has_text="layers").click()
    selected = page.locator('[role="row"][aria-selected="true"]')
    expect(selected).to_be_visible()
    expect(selected).to_contain_text("mlp")
    expect(page.locator("#panel article")).to_contain_text(word("node_class", "source"))

    dashboard.settle()  # the address gains the open branches once the scripts have run
    before = (page.url, selected.get_attribute("data-row"), page.locator(".row[data-row]").count())
    page.reload()
    dashboard.settle()
    assert (page.url, selected.get_attribute("data-row"), page.locator(".row[data-row]").count()) == before
    expect(selected).to_be_in_viewport()


def test_what_is_typed_is_judged_as_soon_as_it_is_known_and_until_then_looked_for(
    dashboard: Dashboard, page: Page, dumps: Path
) -> None:
    dashboard.open("/new")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(re.compile(r"/new\?.*gone"), hold)
    page.locator("#golden").fill(str(dumps / "tokens/llama4_golden_fp32"))
    page.locator("#target").fill(str(dumps / "tokens/gone"))
    page.locator("#target").press("Tab")
    expect(page.locator("#part-said-golden")).to_contain_text("msit-torch")
    expect(page.locator("#part-said-target .being-read")).to_be_visible()
    for route in held:
        route.continue_()
    expect(page.locator("#part-said-target .problem")).to_be_visible()
    expect(page.locator("#part-said-golden")).to_contain_text("msit-torch")


def test_a_comparison_is_deleted_and_taken_back(dashboard: Dashboard, page: Page) -> None:
    dashboard.open("/c/2")
    dashboard.wait_for_comparison()
    page.locator("form[action='/c/2/delete'] button").click()
    expect(page.locator("[data-says=deleted-2]")).to_be_visible()
    expect(page.locator('.comparisons a[href="/c/2"]')).to_have_count(0)
    page.locator(".banner button").click()
    expect(page.locator('.comparisons a[href="/c/2"]')).to_have_count(1)


def test_a_cell_of_the_strip_and_a_metric_are_part_of_the_address(
    dashboard: Dashboard, page: Page, dumps: Path
) -> None:
    sides = {"golden": "llama4_golden_fp32", "target": "llama4_perturb_L2_T3"}
    chosen = {side: str(dumps / "tokens" / name) for side, name in sides.items()}
    made = page.request.post("/api/v1/comparisons", data=chosen).json()["id"]
    dashboard.open(f"/c/{made}")
    dashboard.wait_for_comparison()
    page.locator(".cell-link").nth(1).click()
    page.locator("a[href*='metric=cosine_similarity']").click()
    assert parse_qs(urlsplit(page.url).query) == {"slice": ["1"], "metric": ["cosine_similarity"]}
    expect(page.locator("#selected-title")).to_have_text(re.compile(" 1$"))
    page.get_by_role("figure").locator(".main-svg").first.wait_for()


def test_light_and_dark_are_chosen_once_for_all_pages(dashboard: Dashboard, page: Page) -> None:
    dashboard.open("/")

    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = background()
    page.locator("[data-theme-toggle]").click()
    dark = background()
    assert dark != light
    dashboard.open("/new")
    assert background() == dark


def test_pages_work_without_a_script(dashboard: Dashboard, address: str) -> None:
    browser = dashboard.page.context.browser
    assert browser is not None
    with browser.new_context(java_script_enabled=False, base_url=address) as context:
        page = context.new_page()
        page.goto("/c/1")
        page.locator(".finding .actions a").first.click()
        selected = page.locator('[role="row"][aria-selected="true"]')
        first = selected.get_attribute("data-row")
        page.locator("[data-step='next=bad']").click()
        assert selected.get_attribute("data-row") != first
        shown = page.locator(".row[data-row]").count()
        page.locator('[role="row"][aria-expanded="true"] .twist').first.click()
        assert page.locator(".row[data-row]").count() < shown
        page.locator(".filters label:has([value=error])").click()
        page.locator(".filters button").click()
        assert "verdict=error" in page.url
