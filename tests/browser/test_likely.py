"""Unmatched in one click: what would resolve most is offered on the overview, accepted, and led back from."""

import re
from pathlib import Path

import pytest
from dashboard import Dashboard
from messages import stated
from playwright.sync_api import Page, expect


@pytest.fixture
def comparison(page: Page, dumps: Path) -> int:
    """A comparison of runs with renamed modules, by names alone."""
    chosen = {side: str(dumps / "renamed" / side) for side in ("golden", "target")} | {"structure": False}
    return int(page.request.post("/api/v1/comparisons", data=chosen).json()["id"])


def test_what_would_resolve_most_is_offered_accepted_and_led_back_from(
    dashboard: Dashboard, page: Page, comparison: int
) -> None:
    dashboard.open(f"/c/{comparison}")
    dashboard.wait_for_comparison()
    offered = page.locator("#part-likely li")
    expect(offered).not_to_have_count(0)  # after the page itself, and after the comparison
    before = offered.count()
    more = sum(int(offered.nth(at).get_attribute("data-more") or 0) for at in range(before))
    assert before > 1
    assert more > 0
    page.locator("#part-likely [data-accept=all]").press("Enter")
    page.wait_for_url(re.compile(rf"/c/(?!{comparison}$)\d+$"))
    dashboard.wait_for_comparison()
    results = page.url
    found = page.request.get(f"{results}.json").json()["counts"]["pairs"]
    assert found == page.request.get(f"/c/{comparison}.json").json()["counts"]["pairs"] + more
    said = page.locator("[data-says=match-set]")
    expect(said).to_be_visible()
    said.locator(f"a[href='/c/{comparison}']").click()
    page.wait_for_url(re.compile(rf"/c/{comparison}$"))
    expect(page.locator("#part-sets li")).to_have_count(1)
    dashboard.open("/")
    row = page.locator(".comparisons > li", has=page.locator(f'a[href="/c/{comparison}"]'))
    row.locator("[data-says=match-set] a").click()
    assert page.url == results


def test_without_a_script_it_is_a_link_and_a_form(
    dashboard: Dashboard, page: Page, address: str, comparison: int
) -> None:
    dashboard.open(f"/c/{comparison}")
    dashboard.wait_for_comparison()
    browser = page.context.browser
    assert browser is not None
    with browser.new_context(java_script_enabled=False, base_url=address) as context:
        plain = context.new_page()
        plain.goto(f"/c/{comparison}")
        plain.locator("#part-likely a").click()
        assert plain.url.endswith(f"/c/{comparison}/s/0/likely")
        assert "left-over" in stated(plain.content())
        plain.locator(".likely a[href*=preview]").first.click()
        plain.locator(".says[data-more]").wait_for()
        plain.go_back()
        plain.locator("[data-accept]").nth(1).click()
        plain.wait_for_url(re.compile(r"/c/\d+$"))
        plain.locator("[data-says=match-set]").wait_for()
