"""The form for a new comparison: pairs in one click, what follows what, and what stays in sight."""

import re
from pathlib import Path

from dashboard import Dashboard
from playwright.sync_api import Page, Route, expect


def test_one_click_fills_both_sides_and_compare_is_in_sight(dashboard: Dashboard, page: Page) -> None:
    dashboard.open("/new")
    compare = page.locator(".submit button.primary")
    expect(compare).to_be_in_viewport(ratio=1)
    title = page.locator("#part-pairs li a").first.get_attribute("title") or ""
    golden, target = title.split(" → ")
    pair = page.locator(f'#part-pairs li a[title="{title}"]')  # newer dumps may come before it meanwhile
    pair.focus()
    page.keyboard.press("Enter")
    for side, chosen in (("golden", golden), ("target", target)):
        expect(page.locator(f"#{side}")).to_have_value(chosen)
        expect(page.locator(f"#part-said-{side} [data-chosen]")).to_have_attribute("data-chosen", chosen)
        expect(page.locator(f"#part-folder-{side} .is-chosen")).to_have_count(1)
    expect(pair).to_have_attribute("aria-current", "true")
    expect(pair).to_be_focused()
    page.locator("#part-swapped a").click()
    expect(page.locator("#golden")).to_have_value(target)
    expect(page.locator("#target")).to_have_value(golden)
    pair.click()
    expect(page.locator("#part-said-target [data-chosen]")).to_have_attribute("data-chosen", target)
    expect(page.locator("#golden")).to_have_value(golden)
    expect(compare).to_be_in_viewport(ratio=1)


def test_the_other_side_opens_where_a_dump_was_typed(dashboard: Dashboard, page: Page, dumps: Path) -> None:
    dashboard.open("/new")
    page.locator("#golden").fill("perturbed/golden")  # as pages write it
    expect(page.locator("#part-said-golden")).to_contain_text("msprobe")
    other = page.locator("#part-folder-target")
    expect(other.locator(".trail [aria-current]").first).to_have_text("perturbed")
    other.locator("li", has_text="target").locator(".choose-it").click()
    expect(page.locator("#target")).to_have_value(str(dumps / "perturbed/target"))
    expect(page.locator("#part-command")).to_contain_text(f"firstdrift compare {dumps}/perturbed/golden")
    page.locator(".submit button.primary").click()
    page.wait_for_url(re.compile(r"/c/\d+$"))


def test_a_dump_among_several_in_a_folder_is_chosen_by_a_click(
    dashboard: Dashboard, page: Page, dumps: Path
) -> None:
    dashboard.open("/new")
    page.locator("#target").fill(str(dumps / "tokens"))
    page.locator("#part-said-target .chip", has_text="perturb").click()
    expect(page.locator("#target")).to_have_value(str(dumps / "tokens/llama4_perturb_L2_T3"))
    expect(page.locator("#part-said-target")).to_contain_text("msit-torch")
    expect(page.locator("#part-said-target .chip")).to_have_count(0)


def test_what_was_clicked_is_said_to_be_read_until_it_is_known(dashboard: Dashboard, page: Page) -> None:
    dashboard.open("/new")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/new?*", hold)
    page.locator("#part-pairs li a").first.click()
    for side in ("golden", "target"):
        expect(page.locator(f"#part-said-{side} .being-read")).to_have_count(1)
    for route in held:
        route.continue_()
    page.unroute("**/new?*")
    for side in ("golden", "target"):
        expect(page.locator(f"#part-said-{side} [data-chosen]")).to_have_count(1)


def test_options_are_folded_and_what_was_changed_is_said(dashboard: Dashboard, page: Page) -> None:
    dashboard.open("/new")
    expect(page.locator("#rules")).to_be_hidden()
    page.locator("#how summary").focus()
    page.keyboard.press("Enter")
    page.locator("#rules").select_option("msit")
    page.locator("#token").fill("3")
    changed = page.locator("#part-changed")
    expect(changed).to_contain_text("msit")
    expect(changed.locator("b")).to_have_text(["msit", "3"])
    dashboard.open(page.url)
    expect(page.locator("#rules")).to_be_hidden()
    expect(changed.locator("b")).to_have_text(["msit", "3"])


def test_what_the_browser_finds_wrong_with_a_folded_option_is_shown(dashboard: Dashboard, page: Page) -> None:
    dashboard.open("/new")
    page.locator("#how summary").click()
    page.locator("#tp").fill("two")
    page.locator("#how summary").click()
    expect(page.locator("#tp")).to_be_hidden()
    page.locator(".submit button.primary").click()
    expect(page.locator("#tp")).to_be_visible()
    assert page.url.split("?")[0].endswith("/new")
