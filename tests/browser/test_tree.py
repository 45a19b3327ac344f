import random
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from dashboard import Dashboard
from playwright.sync_api import Locator, Page, Route, expect

from firstdrift.wording.text import texts

TREE = "/c/1/s/0/tree"


@pytest.fixture
def selected(dashboard: Dashboard, page: Page) -> Locator:
    """The tree of the first comparison, and its selected row."""
    dashboard.open("/c/1")
    dashboard.wait_for_comparison()
    dashboard.open(TREE)
    return page.locator('[role="row"][aria-selected="true"]')


def row_of(selected: Locator) -> int:
    return int(selected.get_attribute("data-row") or -1)


def test_at_1280_no_table_of_the_panel_is_cut_off_and_no_badge_runs_into_what_is_beside_it(
    page: Page, selected: Locator
) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    expect(page.locator(".panel .statistics")).to_be_visible()
    cut = page.locator(".panel .scroll").evaluate_all(
        "tables => tables.map((one) => one.scrollWidth - one.clientWidth)"
    )
    assert cut
    assert not any(cut)
    room = selected.locator(".class").evaluate(
        """(badge, text) => {
          badge.textContent = text;
          const next = badge.closest("[role=gridcell]").nextElementSibling;
          return next.getBoundingClientRect().left - badge.getBoundingClientRect().right;
        }""",
        texts("en")["node_class.structure_differs"],
    )
    assert room >= 0


def test_n_and_p_go_from_bad_row_to_bad_row_and_back(
    dashboard: Dashboard, page: Page, selected: Locator
) -> None:
    visited = [row_of(selected)]
    for _ in range(3):
        with page.expect_response(lambda response: "next=bad" in response.url):
            page.keyboard.press("n")
        expect(selected).not_to_have_attribute("data-row", str(visited[-1]))
        expect(selected).to_be_in_viewport()
        expect(selected).to_have_class(re.compile("v-error"))
        visited.append(row_of(selected))
    for row in reversed(visited[:-1]):
        page.keyboard.press("p")
        expect(selected).to_have_attribute("data-row", str(row))
    dashboard.settle()


def test_rows_that_a_jump_leaves_as_they_were_are_neither_sent_nor_made_again(
    page: Page, selected: Locator
) -> None:
    page.locator("[data-step='unfold=all']").click()
    expect(page.locator("#tree-count")).to_have_attribute("data-shown", "636")
    before = row_of(selected)
    row = selected.element_handle()
    with page.expect_response(lambda response: "next=bad" in response.url) as ahead:
        page.keyboard.press("n")
    expect(selected).not_to_have_attribute("data-row", str(before))
    expect(selected).to_be_in_viewport()
    assert ahead.value.json()["pieces"] == []
    assert row.evaluate("row => row.isConnected && row.getAttribute('aria-selected')") == "false"
    assert page.evaluate("document.activeElement.dataset.row") == str(row_of(selected))
    page.keyboard.press("End")
    expect(selected).to_have_attribute("data-place", "635")
    page.keyboard.press("N")  # far away: the rows around it are fetched
    expect(selected).to_have_attribute("data-row", str(before))
    expect(selected).to_be_in_viewport()
    assert page.evaluate("document.activeElement.dataset.row") == str(before)


def test_what_a_row_holds_is_fetched_once_and_before_it_is_opened(page: Page, selected: Locator) -> None:
    expect(selected).to_be_focused()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "toggle=" in request.url else None)
    for way in ("rests", "presses", "clicks"):
        closed = page.locator('[role="row"][aria-expanded="false"]').first
        row = closed.get_attribute("data-row")
        with page.expect_response(lambda response, row=row: f"toggle={row}&most=" in response.url):  # type: ignore[misc]
            closed.locator(".twist").hover()
            if way != "rests":
                page.mouse.down()
            if way == "clicks":
                page.mouse.up()
        if way == "rests":
            page.mouse.down()
        if way != "clicks":
            page.mouse.up()
        expect(page.locator(f'[data-row="{row}"]')).to_have_attribute("aria-expanded", "true")
        expect(selected).to_be_focused()  # the selected row keeps it
    page.wait_for_timeout(100)  # nor does the pointer, which rests there still, have it fetched once more
    assert len(asked) == 3


SHOWN = """rows => [...rows.querySelectorAll("[data-row]")].map(row => [
    Number(row.dataset.place), Number(row.dataset.row), row.getAttribute("aria-expanded"),
    Number(row.ariaRowIndex) - 2, row.ariaSelected
])"""
IS_FULL = """([body, total]) => {
    const places = new Set([...body.querySelectorAll("[data-row]")].map(row => Number(row.dataset.place)));
    const first = Math.floor(body.scrollTop / 28);
    const end = Math.min(total, Math.floor((body.scrollTop + body.clientHeight) / 28));
    const wanted = Array.from({length: Math.max(0, end - first)}, (_, index) => first + index);
    return wanted.every(place => places.has(place));
}"""


def test_rows_that_stay_are_where_the_server_sees_them(page: Page, selected: Locator) -> None:
    expect(selected).to_be_visible()
    chosen = random.Random(0)  # noqa: S311
    body = page.locator("#tree-body")
    page.locator("[data-step='unfold=all']").click()
    expect(page.locator("#tree-count")).to_have_attribute("data-shown", "636")
    for _ in range(40):
        query = urlsplit(page.url).query
        branches = page.locator('[role="row"][aria-expanded]')
        branches.nth(chosen.randrange(branches.count())).locator(".twist").click()
        page.wait_for_function("before => location.search !== before", arg=f"?{query}")
        if chosen.randrange(3) == 0:
            body.evaluate("(body, to) => body.scrollTo(0, to)", chosen.randrange(9000))
        query = urlsplit(page.url).query
        expected = page.request.get(f"/api/v1/comparisons/1/slices/0/rows?{query}&count=1000").json()
        page.wait_for_function(IS_FULL, arg=[body.element_handle(), expected["total"]])
        by_place = {row["place"]: row for row in expected["rows"]}
        shown = page.locator("#rows").evaluate(SHOWN)
        assert len({place for place, *_ in shown}) == len(shown)
        for place, index, expanded, row_index, is_selected in shown:
            row = by_place[place]
            assert (index, row_index) == (row["row"], place)
            assert expanded == (str(row["is_open"]).lower() if row["has_children"] else None)
            assert is_selected == str(row["is_selected"]).lower()


def test_links_of_rows_lead_to_what_is_seen_now(page: Page, selected: Locator) -> None:
    expect(selected).to_be_visible()
    first, second = (
        int(page.locator('[role="row"][aria-expanded="false"]').nth(number).get_attribute("data-row") or -1)
        for number in range(2)
    )
    page.locator(f'[data-row="{first}"] .twist').click()
    expect(page.locator(f'[data-row="{first}"]')).to_have_attribute("aria-expanded", "true")
    with page.context.expect_page() as opened:
        page.locator(f'[data-row="{second}"] .twist').click(modifiers=["Control"])
    for row in (first, second):
        expect(opened.value.locator(f'[data-row="{row}"]')).to_have_attribute("aria-expanded", "true")


def test_whoever_scrolls_while_a_row_is_closed_stays_where_they_are(page: Page, selected: Locator) -> None:
    expect(selected).to_be_visible()
    page.locator("[data-step='unfold=all']").click()
    expect(page.locator("#tree-count")).to_have_attribute("data-shown", "636")
    body = page.locator("#tree-body")

    def answer_late(route: Route) -> None:
        body.evaluate("element => element.scrollTo(0, 8000)")
        route.continue_()

    page.route("**/rows?*toggle=*", answer_late)
    page.locator('[role="row"][aria-level="4"][aria-expanded="true"] .twist').first.click()
    expect(page.locator("#tree-count")).not_to_have_attribute("data-shown", "636")
    expect(page.locator('[data-place="300"]')).to_be_visible()
    assert body.evaluate("element => element.scrollTop") == 8000


SLOW = """const quick = window.fetch;
window.fetch = async (...asked) => {
    if (String(asked[0]).includes("/rows?")) await new Promise(done => setTimeout(done, 400));
    return quick(...asked);
};
null"""


@pytest.fixture
def slow(page: Page, selected: Locator) -> Locator:
    """The selected row of a tree whose answers are late."""
    expect(selected).to_be_focused()
    page.evaluate(SLOW)
    return selected


@pytest.mark.usefixtures("slow")
def test_rows_that_are_opened_while_an_answer_is_late_are_all_opened(page: Page) -> None:
    closed = page.locator('[role="row"][aria-expanded="false"]')
    rows = [closed.nth(number).get_attribute("data-row") for number in range(3)]
    for row in rows:
        page.locator(f'[data-row="{row}"] .twist').click()
    for row in rows:
        expect(page.locator(f'[data-row="{row}"]')).to_have_attribute("aria-expanded", "true")


@pytest.mark.usefixtures("slow")
def test_a_row_that_is_opened_and_closed_again_while_the_answer_is_late_is_closed(page: Page) -> None:
    before = parse_qs(urlsplit(page.url).query)
    row = page.locator('[role="row"][aria-expanded="false"]').first.get_attribute("data-row")

    def closes(url: str) -> bool:
        asked = parse_qs(urlsplit(url).query)
        return asked.get("toggle") == [row] and asked["open"] != before["open"]

    with page.expect_response(lambda response: closes(response.url)):
        for _ in range(2):
            page.locator(f'[data-row="{row}"] .twist').click()
    expect(page.locator(f'[data-row="{row}"]')).to_have_attribute("aria-expanded", "false")
    assert parse_qs(urlsplit(page.url).query) == before


def test_keys_that_are_pressed_while_an_answer_is_late_are_meant_for_what_is_seen_after_it(
    page: Page, slow: Locator
) -> None:
    page.locator('[role="row"][aria-expanded="false"]').first.locator(".label").click()
    branch = row_of(slow)
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    expect(slow).to_have_attribute("data-row", re.compile(f"^(?!{branch}$)"))
    first = page.locator(f'[role="row"][data-parent="{branch}"]').first
    place = int(first.get_attribute("data-place") or -1)
    expect(slow).to_have_attribute("data-place", str(place + 1))
    expect(page.locator(f'[data-row="{branch}"]')).to_have_attribute("aria-expanded", "true")


@pytest.mark.usefixtures("slow")
def test_a_row_that_is_opened_while_a_search_is_late_leaves_the_search_in_force(page: Page) -> None:
    page.locator("input[name=q]").fill("mlp")
    page.wait_for_timeout(300)  # the search is asked for, and not answered yet
    branch = page.locator('[role="row"][aria-expanded="true"]').first
    row = branch.get_attribute("data-row")
    branch.locator(".twist").click()
    expect(page).to_have_url(re.compile("q=mlp"))
    expect(page.locator(f'[data-row="{row}"]')).to_have_attribute("aria-expanded", "false")
    expect(page.locator("#tree-count")).to_have_attribute("data-matching", "92")
    assert parse_qs(urlsplit(page.url).query)["q"] == ["mlp"]


def test_rows_that_are_no_longer_there_are_not_asked_for_again_and_again(
    page: Page, selected: Locator
) -> None:
    expect(selected).to_be_focused()
    page.locator("[data-step='unfold=all']").click()
    expect(page.locator("#tree-count")).to_have_attribute("data-shown", "636")
    asked: list[str] = []

    def say_nothing(route: Route) -> None:
        asked.append(route.request.url)
        response = route.fetch()
        route.fulfill(response=response, json=response.json() | {"pieces": [""]})

    page.route("**/rows?*&rows=*", say_nothing)
    page.locator("#tree-body").evaluate("body => body.scrollTo(0, 9000)")
    page.wait_for_timeout(1500)
    assert 1 <= len(asked) < 4


def test_arrows_move_open_and_close_and_the_address_follows(page: Page, selected: Locator) -> None:
    page.keyboard.press("Home")
    expect(selected).to_have_attribute("data-place", "0")
    page.keyboard.press("ArrowLeft")
    expect(selected).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("ArrowRight")
    expect(selected).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("ArrowRight")
    expect(selected).to_have_attribute("data-place", "1")
    page.keyboard.press("ArrowDown")
    expect(selected).to_have_attribute("data-place", "2")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    expect(selected).to_have_attribute("data-place", "0")
    page.keyboard.press("End")
    expect(selected).not_to_have_attribute("data-place", "0")
    assert parse_qs(urlsplit(page.url).query)["row"] == [str(row_of(selected))]
    last = row_of(selected)
    page.reload()
    expect(selected).to_have_attribute("data-row", str(last))
    expect(page.locator("#panel article")).to_have_attribute("data-node", str(last))


def test_everything_can_be_opened_and_only_what_is_seen_is_kept(page: Page, selected: Locator) -> None:
    page.locator("[data-step='unfold=all']").click()
    expect(page.locator("#tree-count")).to_have_attribute("data-shown", "636")
    page.keyboard.press("End")
    expect(selected).to_have_attribute("data-place", "635")
    expect(selected).to_be_in_viewport()
    page.locator("#tree-body").evaluate("element => element.scrollTo(0, 8000)")
    expect(page.locator('[data-place="300"]')).to_be_visible()
    assert "closed=" in page.url


def test_filters_and_search_narrow_the_tree_down_and_can_be_cleared(page: Page, selected: Locator) -> None:
    page.locator("label.chip:has([value='weights differ'])").click()
    expect(page.locator("#tree-count")).to_have_attribute("data-matching", "1")
    assert parse_qs(urlsplit(page.url).query)["class"] == ["weights differ"]
    page.keyboard.press("/")
    page.keyboard.type("no such name")
    expect(page.locator("#no-rows")).to_be_visible()
    page.locator("[data-clear]").click()
    expect(page.locator("#no-rows")).to_be_hidden()
    assert "class" not in parse_qs(urlsplit(page.url).query)
    page.keyboard.press("/")
    page.keyboard.type("down_proj")
    expect(page.locator("#tree-count")).not_to_have_attribute("data-matching", "636")
    page.keyboard.press("Enter")
    expect(selected).to_be_focused()


def test_help_lists_the_keys_and_links_and_markdown_are_copied(page: Page, selected: Locator) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.keyboard.press("c")
    expect(page.locator(".toast")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    page.keyboard.press("m")
    page.wait_for_function("() => navigator.clipboard.readText().then((text) => text.startsWith('**'))")
    assert "| output.0 |" in page.evaluate("navigator.clipboard.readText()")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    row = row_of(selected)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/n/{row}")


def test_unmatched_rows_of_both_sides_stand_in_the_tree(dashboard: Dashboard, page: Page) -> None:
    dashboard.open("/c/2")
    dashboard.wait_for_comparison()
    dashboard.open("/c/2/s/0/tree?verdict=unmatched")
    unmatched = page.locator(".row.is-unmatched")
    expect(unmatched.first).to_be_visible()
    with page.expect_response(lambda response: "unmatched" in response.url):
        page.keyboard.press("u")
    expect(page.locator("#panel .verdict.v-unmatched")).to_be_visible()


@pytest.mark.usefixtures("selected")
def test_rows_are_listed_by_error_with_the_columns_that_were_chosen(dashboard: Dashboard, page: Page) -> None:
    page.locator("#tools [name=sort]").select_option("error")
    page.wait_for_url("**sort=error**")
    first = page.locator('[role="row"][data-place="0"]')
    expect(first).to_have_attribute("aria-level", "1")
    expect(page.locator("#tree-count")).to_have_attribute("data-matching", "636")
    page.locator(".arrange summary").click()
    page.locator("[name=column][value=reason]").check()
    page.locator("[name=column][value=golden]").uncheck()
    expect(page.locator(".head .reason-cell")).to_be_visible()
    expect(page.locator(".head .golden-cell")).to_have_count(0)
    page.wait_for_url("**column=reason**")
    query = parse_qs(urlsplit(page.url).query)
    assert (query["sort"], "golden" in query["column"], "reason" in query["column"]) == (
        ["error"],
        False,
        True,
    )
    errors = page.locator('[role="row"] .error-cell.output data')
    values = [float(errors.nth(place).get_attribute("value") or "nan") for place in range(8)]
    assert values == sorted(values, reverse=True)
    dashboard.settle()


@pytest.mark.usefixtures("selected")
def test_a_pattern_finds_rows_from_the_keyboard(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type(r"layers\.\d\.mlp\.up")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.wait_for_url("**regex=1*")
    expect(page.get_by_role("link", name="up_proj").first).to_be_visible()
    query = parse_qs(urlsplit(page.url).query)
    assert (query["q"], query["regex"]) == ([r"layers\.\d\.mlp\.up"], ["1"])


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_bad_regular_expression_is_said_at_its_field_until_it_is_mended(
    dashboard: Dashboard, page: Page, selected: Locator, language: str
) -> None:
    said = texts(language)["catalogue.pattern.missing"]
    page.context.add_cookies([{"name": "firstdrift_language", "value": language, "url": dashboard.address}])
    dashboard.open(TREE)
    before = row_of(selected)
    field, problem = page.locator("input[name=q]"), page.locator("#search-problem")
    page.locator("input[name=regex]").check()
    field.fill("(down|up")
    expect(problem).to_contain_text(said)
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_have_accessible_description(re.compile(said))
    assert page.get_by_role("alert").count() == 1
    expect(page.locator(".toast")).to_be_hidden()
    page.keyboard.press("Escape")  # back to the tree, which is as it was
    expect(selected).to_have_attribute("data-row", str(before))
    page.keyboard.press("n")
    expect(selected).not_to_have_attribute("data-row", str(before))
    expect(problem).to_be_visible()
    field.fill("(down|up)_proj")
    expect(problem).to_be_hidden()
    expect(field).to_have_attribute("aria-invalid", "false")
    expect(page).to_have_url(re.compile("_proj&regex=1"))
    dashboard.settle()
    dashboard.complaints[:] = [one for one in dashboard.complaints if "regex=1" not in one]


VERDICTS = {
    "en": ["error", "warning", "incomparable", "pass"],
    "zh": ["错误", "警告", "不可比较", "通过"],
}
CLASSES = {
    "en": [
        *("source", "weights differ", "non-finite", "structure differs", "amplified"),
        *("propagated", "healed", "unmatched", "clean"),
    ],
    "zh": ["来源", "权重不同", "非有限值", "结构不同", "放大", "传播", "恢复", "未匹配", "正常"],
}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_filters_take_two_lines_however_many_there_are(page: Page, selected: Locator, language: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    expect(selected).to_be_visible()
    page.locator("[data-language] button").click()
    if language == "en":
        page.locator("[data-language] button").click()
    expect(page.locator("html")).to_have_attribute("lang", re.compile(language))
    # As many verdicts and classes as there can be, the longest names among them.
    page.locator(".filters").evaluate(
        """(filters, [verdicts, classes]) => {
            for (const [name, texts] of [["verdict", verdicts], ["class", classes]]) {
                const chips = filters.querySelectorAll(".chips")[name === "class" ? 1 : 0];
                const [first] = chips.children;
                chips.replaceChildren(...texts.map((text) => {
                    const chip = first.cloneNode(true);
                    chip.querySelector("input").nextSibling.textContent = text;
                    chip.querySelector(".count").textContent = "15,500";
                    return chip;
                }));
            }
        }""",
        [VERDICTS[language], CLASSES[language]],
    )
    lines = page.locator(".filters .chip").evaluate_all(
        "chips => new Set(chips.map((chip) => Math.round(chip.getBoundingClientRect().top))).size"
    )
    assert lines <= 2
    height = page.locator(".filters").bounding_box()
    assert height is not None
    assert height["height"] < 65


@pytest.mark.parametrize("language", ["en", "zh"])
def test_tools_and_filters_take_a_line_each(page: Page, selected: Locator, language: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    expect(selected).to_be_visible()
    page.locator("[data-language] button").click()
    if language == "en":
        page.locator("[data-language] button").click()
    expect(page.locator("html")).to_have_attribute("lang", re.compile(language))
    box = page.locator("#tools").bounding_box()
    assert box is not None
    assert box["height"] < 90
    expect(page.locator("#tools [name=sort]")).to_be_in_viewport(ratio=1)


def test_the_menu_of_columns_lies_in_the_window(page: Page, selected: Locator) -> None:
    expect(selected).to_be_visible()
    page.locator(".arrange summary").click()
    menu = page.locator(".arrange fieldset")
    for box in menu.get_by_role("checkbox").all():
        expect(box).to_be_in_viewport(ratio=1)
    expect(menu).to_be_in_viewport(ratio=1)


def test_columns_take_effect_at_once_and_at_the_same_place(
    dashboard: Dashboard, page: Page, selected: Locator
) -> None:
    expect(selected).to_be_visible()
    page.locator("[data-step='unfold=all']").click()
    page.wait_for_url("**closed=**")
    dashboard.settle()
    page.locator("#tree-body").evaluate("body => (body.scrollTop = 1400)")
    dashboard.settle()
    seen = page.locator('#rows .row[data-place="55"] .label')
    expect(seen).to_be_in_viewport()
    before, chosen = seen.text_content(), parse_qs(urlsplit(page.url).query)["row"]
    page.locator(".arrange summary").click()
    headings = page.locator("#tree-body").get_by_role("columnheader")
    usual = headings.count()
    box = page.locator("[name=column][value=reason]")
    box.press("Space")
    expect(page.locator(".head .reason-cell")).to_be_visible()
    count = headings.count()
    expect(page.locator("#tree-body")).to_have_attribute("aria-colcount", str(count))
    expect(page.locator("#rows .row").first.get_by_role("gridcell")).to_have_count(count)
    expect(box).to_be_focused()
    expect(box).to_be_checked()
    assert page.locator("#tree-body").evaluate("body => body.scrollTop") == 1400
    expect(seen).to_have_text(before or "nothing")
    expect(seen).to_be_in_viewport()
    box.press("Space")
    expect(headings).to_have_count(usual)
    dashboard.settle()
    page.reload()
    expect(page.locator('[aria-selected="true"]')).to_have_attribute("data-row", chosen[0])
    expect(headings).to_have_count(usual)


@pytest.mark.parametrize(("width", "is_shown"), [(1280, False), (1920, True)])
def test_the_menu_of_columns_says_which_has_no_room(
    page: Page, selected: Locator, width: int, is_shown: bool
) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    expect(selected).to_be_visible()
    page.locator(".arrange summary").click()
    expect(page.locator("[name=column][value=golden]")).to_be_checked()
    expect(page.locator(".head .golden-cell")).to_be_visible(visible=is_shown)
    expect(page.locator("#no-room")).to_be_visible(visible=not is_shown)


@pytest.mark.parametrize("path", [TREE, "/c/1/s/0/match"])
def test_a_narrow_window_does_not_scroll_sideways(dashboard: Dashboard, page: Page, path: str) -> None:
    dashboard.open("/c/1")
    dashboard.wait_for_comparison()
    page.set_viewport_size({"width": 600, "height": 800})
    dashboard.open(path)
    expect(page.locator("main")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 600


def test_a_jump_to_what_is_not_there_says_so(page: Page, selected: Locator) -> None:
    before = row_of(selected)
    page.locator("[data-step='next=unmatched']").click()
    expect(page.locator(".toast")).to_be_visible()
    assert row_of(selected) == before
