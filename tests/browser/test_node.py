"""A node's page in a browser: a pair of tensors from near, by mouse, by keyboard and by its address."""

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from closeup_dumps import write_dumps
from dashboard import Dashboard
from messages import like
from playwright.sync_api import Browser, Page, expect

from firstdrift.wording.text import word


@pytest.fixture(scope="module")
def rows(browser: Browser, address: str, dumps: Path) -> dict[str, str]:
    """Where the nodes of two dumps are, of which some tensors were changed on purpose."""
    golden, target = write_dumps(dumps / "near")
    with browser.new_context(base_url=address) as context:
        asked = {"golden": str(golden), "target": str(target)}
        made = context.request.post("/api/v1/comparisons", data=asked)
        assert made.status == 201, made.text()
        comparison = made.headers["location"].rpartition("/")[2]
        page = context.new_page()
        page.goto(f"/c/{comparison}")
        page.locator(".finding .sentence a").first.wait_for(timeout=60_000)
        found = context.request.get(f"/api/v1/comparisons/{comparison}/slices/0/rows?unfold=all").json()
        return {row["path"]: f"/c/{comparison}/s/0/n/{row['row']}" for row in found["rows"]}


def at_place(page: Page, text: str) -> None:
    expect(page.locator(".around")).to_contain_text(text, timeout=15_000)


def said_by(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def test_the_worst_tensor_is_shown_when_the_page_is_there(
    dashboard: Dashboard, page: Page, rows: dict[str, str]
) -> None:
    dashboard.open(rows["model.layers.0.mlp"])
    expect(page.locator(".hints")).to_contain_text("1.9 \N{MULTIPLICATION SIGN}")
    expect(page.locator(".hints")).to_contain_text(word("hint_kind", "non-finite"))
    at_place(page, "[1, 3, 5]")
    expect(page.locator("#closeup-values .is-here").nth(1)).to_have_text("NaN")
    page.locator("#closeup-spread").scroll_into_view_if_needed()
    for chart in ("spread", "differences", "profile"):
        page.locator(f"#closeup-{chart} .main-svg").first.wait_for()
    dashboard.settle()


def test_the_axis_of_few_elements_counts_them(dashboard: Dashboard, page: Page, rows: dict[str, str]) -> None:
    dashboard.open(rows["model.layers.1.mlp"])
    page.locator("#closeup-spread").scroll_into_view_if_needed()
    ticks = page.locator("#closeup-spread .yaxislayer-above text")
    ticks.first.wait_for()
    counted = [int(text) for text in ticks.all_text_contents()]
    assert counted == list(range(len(counted)))
    assert len(counted) > 2
    dashboard.settle()


def test_the_address_says_what_is_shown_and_a_fresh_browser_shows_the_same(
    dashboard: Dashboard, page: Page, rows: dict[str, str]
) -> None:
    dashboard.open(f"{rows['model.norm']}?tensor=output.0&down=2&across=0&at=1,2,30")
    at_place(page, "[1, 2, 30]")
    expect(page.locator('select[name="down"]')).to_have_value("2")
    page.locator("#closeup-values").focus()
    page.keyboard.press("ArrowDown")
    at_place(page, "[1, 2, 31]")
    page.keyboard.press("ArrowLeft")
    at_place(page, "[0, 2, 31]")
    assert said_by(page) == {"tensor": ["output.0"], "down": ["2"], "across": ["0"], "at": ["0,2,31"]}
    before = page.locator("#closeup-values").inner_text()
    page.reload()
    assert page.locator("#closeup-values").inner_text() == before


def test_slices_are_picked_by_keyboard_and_the_map_follows(
    dashboard: Dashboard, page: Page, rows: dict[str, str]
) -> None:
    dashboard.open(f"{rows['model.layers.0.mlp']}?tensor=output.0")
    picture = page.locator("#closeup-map")
    expect(page.locator("#closeup-scale .scale")).not_to_be_empty()
    first = picture.evaluate("canvas => canvas.toDataURL()")
    picker = page.locator('input[data-axis="0"]')
    expect(picker).to_have_value("1")
    with page.expect_response(re.compile("parts=map")):
        picker.focus()
        page.keyboard.press("ArrowDown")
    assert said_by(page)["at"] == ["0,3,5"]
    page.wait_for_function("old => document.getElementById('closeup-map').toDataURL() !== old", arg=first)
    with page.expect_response(re.compile("down=0&across=2")):
        page.locator('select[name="down"]').select_option("0")
    with page.expect_response(re.compile("down=2&across=0")):  # the two change places
        page.locator('select[name="down"]').select_option("2")
    expect(page.locator('select[name="across"]')).to_have_value("0")
    dashboard.settle()


def test_the_map_is_read_with_the_keys_and_leads_to_the_values(
    dashboard: Dashboard, page: Page, rows: dict[str, str]
) -> None:
    dashboard.open(f"{rows['model.layers.0.wide']}?tensor=output.0&at=0,0")
    expect(page.locator("#closeup-scale .scale")).not_to_be_empty()
    page.locator("#closeup-map").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#closeup-cell")).to_have_text(re.compile(r"\[8\D+15, 0\D+2\].* 0\.25"))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    at_place(page, "[8, 3]")
    page.locator("#closeup-map").hover(position={"x": 1, "y": 1})
    expect(page.locator("#closeup-cell")).to_have_text(re.compile(r"\[0\D+7, 0\D+2\].* 0\.25"))


def test_a_worst_element_and_another_tensor_are_chosen_by_click_and_taken_back(
    dashboard: Dashboard, page: Page, rows: dict[str, str]
) -> None:
    dashboard.open(f"{rows['model.layers.0.attn']}?tensor=output.0&heads=4")
    expect(page.locator(".hints")).to_contain_text(re.compile(like("hint.head")))
    link = page.locator(".worst a").nth(3)
    index = link.inner_text()
    link.click()
    at_place(page, index)
    page.go_back()
    expect(page.locator(".around")).not_to_contain_text(index)
    page.locator("#closeup nav a").first.click()
    expect(page.locator("#closeup nav a").first).to_have_attribute("aria-current", "true")
    dashboard.settle()


def test_markdown_and_the_script_are_copied(dashboard: Dashboard, page: Page, rows: dict[str, str]) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    dashboard.open(f"{rows['model.layers.0.mlp.act']}?tensor=output.0")
    page.locator("[data-copy-markdown]").click()
    expect(page.locator(".toast")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert re.search(r"^- .*\+ 0\.5", copied, re.MULTILINE)
    assert "| index | golden | target | difference |" in copied
    assert not re.search(r"(?<!\()\b\d\.\d{7,}", copied)  # all digits only in parentheses
    page.locator("#closeup summary").click()
    page.locator("[data-copy-from='#closeup-snippet']").click()
    page.wait_for_function(
        "() => navigator.clipboard.readText().then((text) => text.includes('load_tensor'))"
    )
    compile(page.evaluate("navigator.clipboard.readText()"), "copied", "exec")


def test_without_a_script_the_form_leads_to_the_same(
    browser: Browser, address: str, rows: dict[str, str]
) -> None:
    with browser.new_context(java_script_enabled=False, base_url=address) as context:
        page = context.new_page()
        page.goto(rows["model.norm"])
        page.locator("td a[data-closer-link]").first.click()
        expect(page.locator(".hints")).to_contain_text(word("hint_kind", "moved"))
        page.locator('input[name="at"]').last.fill("7")
        page.locator(".pickers button").click()
        expect(page.locator(".around")).to_contain_text(", 7]")
        data = page.url.partition("#")[0].replace("?", ".json?", 1)
        assert page.request.get(data).json()["closeup"]["at"][-1] == 7


def test_charts_take_the_colours_of_the_other_theme(
    dashboard: Dashboard, page: Page, rows: dict[str, str]
) -> None:
    dashboard.open(f"{rows['model.layers.0.mlp.act']}?tensor=output.0")
    page.locator("#closeup-profile").scroll_into_view_if_needed()
    label = page.locator("#closeup-profile .xtick text").first
    label.wait_for()
    drawn = "() => [getComputedStyle(document.querySelector('#closeup-profile .xtick text')).fill, "
    drawn += "document.getElementById('closeup-map').toDataURL()]"
    before = page.evaluate(drawn)
    page.locator("[data-theme-toggle]").click()
    page.wait_for_function(
        f"(before) => ({drawn})().every((after, which) => after !== before[which])", arg=before
    )
