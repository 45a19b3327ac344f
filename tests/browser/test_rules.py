"""Thresholds are moved, seen at once, applied and taken back."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from dashboard import Dashboard
from playwright.sync_api import Page, expect

from firstdrift.wording.text import word


@pytest.fixture
def rules(dashboard: Dashboard, page: Page) -> str:
    """The page of the rules of a finished comparison, open; its address."""
    dashboard.open("/c/1")
    dashboard.wait_for_comparison()
    page.locator("nav a[href='/c/1/rules']").click()
    dashboard.settle()
    return page.url


def chosen(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def test_a_moved_threshold_changes_the_count_at_once_and_is_in_the_address(page: Page, rules: str) -> None:
    flagged = page.locator("[data-flagged]")
    before = flagged.get_attribute("data-flagged")
    title = word("threshold", "floor")
    floor = page.get_by_role("spinbutton", name=title, exact=True)
    page.evaluate("window.stayed = true")
    floor.fill("1000000")
    expect(flagged).not_to_have_attribute("data-flagged", before or "")
    assert chosen(page) == {"rules": ["firstdrift"], "floor": ["1000000"]}
    assert page.evaluate("window.stayed"), "the page was loaded anew"
    counted = flagged.get_attribute("data-flagged")
    page.reload()
    expect(flagged).to_have_attribute("data-flagged", counted or "")
    expect(floor).to_have_value("1000000")

    page.locator("[data-reset=t-floor]").click()
    expect(flagged).to_have_attribute("data-flagged", before or "")
    assert chosen(page) == {"rules": ["firstdrift"]}
    assert rules.endswith("/rules")


@pytest.mark.usefixtures("rules")
def test_a_slider_moves_its_threshold_and_stands_at_the_default_in_the_middle(page: Page) -> None:
    slider = page.locator('[data-of="t-factor"]')
    assert slider.input_value() == "500"
    slider.fill("625")
    expect(page.locator("#t-factor")).to_have_value("9.49")  # half a decade up
    expect(page.locator("#part-apply [data-says=tried-1]")).to_be_visible()
    page.locator("#t-factor").fill("3")
    assert slider.input_value() == "500"


@pytest.mark.usefixtures("rules")
def test_what_is_wrong_with_a_threshold_stands_at_its_field_until_it_is_mended(page: Page) -> None:
    factor, apply = page.locator("#t-factor"), page.locator("#part-apply button")
    factor.fill("50")
    expect(page.locator("#part-apply")).to_contain_text("factor = 50")
    expect(apply).to_be_enabled()
    for wrong in ("-3", "0.5"):
        factor.fill(wrong)
        expect(factor).to_have_attribute("aria-invalid", "true")
        expect(page.locator("#p-factor")).to_have_text(re.compile(r"\b1\b.*\b1000000\b"))
        expect(page.locator("#rules-problem")).to_be_visible()
        expect(apply).to_be_disabled()
    assert chosen(page)["factor"] == ["50"]
    factor.fill("40")
    expect(page.locator("#part-apply")).to_contain_text("factor = 40")
    expect(apply).to_be_enabled()
    expect(page.locator("#p-factor")).to_be_hidden()
    expect(page.locator("#rules-problem")).to_be_hidden()


@pytest.mark.usefixtures("rules")
def test_another_rule_set_opens_its_thresholds_and_counts_by_its_rules(page: Page) -> None:
    page.get_by_role("radio", name="msprobe").check()
    expect(page.locator('tr[data-row="tool.norm"]')).to_be_visible()
    expect(page.locator("#t-msprobe_norm_out")).to_be_visible()
    expect(page.locator("#t-factor")).to_be_hidden()


@pytest.mark.usefixtures("rules")
def test_what_is_applied_is_said_on_the_comparison_and_taken_back_with_one_click(
    dashboard: Dashboard, page: Page
) -> None:
    summary = page.locator('[data-place="first_bad_node"]')
    expect(summary).to_be_visible()
    page.locator(".advanced summary").click()
    page.locator("#t-weak_factor").fill("2.5")
    expect(page.locator("#part-apply [data-says=tried-1]")).to_be_visible()
    page.locator("#part-apply button").click()
    page.wait_for_url("**/c/1")
    dashboard.wait_for_comparison()
    expect(page.locator("#part-actions [data-says=moved-1]")).to_be_visible()
    page.locator(".rules-state button").click()
    page.wait_for_url("**/c/1")
    dashboard.wait_for_comparison()
    expect(page.locator(".rules-state")).to_have_count(0)


@pytest.mark.usefixtures("rules")
def test_the_limit_in_the_picture_moves_with_its_slider(page: Page) -> None:
    limit, slider = page.locator('[data-picture="t-floor"] .limit'), page.locator('[data-of="t-floor"]')
    above = page.locator('[data-above="t-floor"]')
    usual = above.inner_text()
    assert limit.get_attribute("x1") == slider.input_value() == "500"
    assert page.locator('[data-picture="t-floor"] rect.is-above').count() > 0
    slider.fill("1000")
    expect(limit).to_have_attribute("x1", "1000")
    expect(page.locator('[data-picture="t-floor"] rect.is-above')).to_have_count(0)
    expect(above).not_to_have_text(usual)
    moved = above.inner_text()
    expect(page.locator("#part-apply [data-says=tried-1]")).to_be_visible()
    expect(limit).to_have_attribute("x1", "1000")
    page.reload()  # the server draws the same
    expect(above).to_have_text(moved)


@pytest.mark.usefixtures("rules")
def test_six_sliders_are_seen_and_what_is_wrong_moves_nothing(page: Page) -> None:
    expect(page.locator("[data-of]:visible")).to_have_count(6)
    last = page.locator("#t-drift_roundoffs")
    below, effect = last.bounding_box(), page.locator("#part-apply").bounding_box()
    page.locator("#t-factor").fill("0.5")
    expect(page.locator("#p-factor")).to_be_visible()
    expect(page.locator("#rules-problem")).to_be_visible()
    assert last.bounding_box() == below
    assert page.locator("#part-apply").bounding_box() == effect
    page.locator(".advanced summary").click()
    place = "(element) => element.getBoundingClientRect().top + scrollY"
    below = page.locator("#t-roundoff_float8_e5m2").evaluate(place)
    page.locator("#t-roundoff_bfloat16").fill("-1")
    expect(page.locator("#p-roundoff_bfloat16")).to_be_visible()
    assert page.locator("#t-roundoff_float8_e5m2").evaluate(place) == below


@pytest.mark.usefixtures("rules")
def test_a_threshold_that_the_tables_name_is_opened_and_focused(page: Page) -> None:
    expect(page.locator("#t-hidden_floor")).to_be_hidden()
    page.locator(".rule-table a[href='#t-hidden_floor']").first.click()
    expect(page.locator("#t-hidden_floor")).to_be_focused()
    expect(page.locator("table.roundings #t-roundoff_bfloat16")).to_be_visible()
