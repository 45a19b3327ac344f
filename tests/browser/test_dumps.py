import re
import shutil
from pathlib import Path
from urllib.parse import quote

from dashboard import Dashboard
from hostile_dump import HOSTILE
from playwright.sync_api import Page, expect


def test_a_dump_is_read_walked_by_keys_and_a_statistic_followed_over_tokens(
    dashboard: Dashboard, page: Page, dumps: Path
) -> None:
    # A dump of its own: one that others have compared is read already.
    unread = shutil.copytree(dumps / "tokens" / "llama4_golden_fp32", dumps / "never-opened")
    dashboard.open(f"/dumps?path={unread}")
    page.locator("form[action='/dumps'] button.primary").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/dumps/\d+$"))
    page.locator("#part-slices a[href$='/s/1/tree']").click()
    page.wait_for_url(re.compile("/s/1/tree"))
    selected = page.locator('[role="row"][aria-selected="true"]')
    expect(selected).to_have_attribute("data-place", "0")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(selected).to_contain_text("embed_tokens")
    panel = page.locator("#panel article")
    expect(panel).to_contain_text("output.0")
    expect(panel.locator("[data-says=values]").first).to_be_visible()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    expect(selected).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("]")
    page.wait_for_url(re.compile("/s/2/tree"))
    page.keyboard.press("/")
    page.keyboard.type("lm_head")
    expect(page.locator("#tree-count")).to_have_attribute("data-matching", "1")
    page.keyboard.press("Enter")
    expect(selected).to_contain_text("lm_head")
    expect(page.locator("#panel h2")).to_contain_text("lm_head")
    expect(selected).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/s/2/n/\d+"))
    expect(page.locator("#trend-chart .main-svg").first).to_be_visible()
    points = page.locator("#trend-chart .scatterlayer .point")
    expect(points).to_have_count(page.locator("#trend-table tbody tr").count())
    page.locator("#trend [name=statistic]").select_option("maximum")
    page.wait_for_url(re.compile("statistic=maximum"))
    expect(page.locator("#trend [name=statistic]")).to_have_value("maximum")
    dashboard.settle()


def test_without_javascript_the_tree_and_the_trend_are_there(
    dashboard: Dashboard, page: Page, dumps: Path, address: str
) -> None:
    dashboard.open("/c/1")
    dashboard.wait_for_comparison()
    dashboard.open(f"/dumps?path={dumps / 'perturbed' / 'golden'}")
    here = re.search(r"/dumps/\d+$", page.url)
    assert here is not None
    assert page.context.browser is not None
    plain = page.context.browser.new_context(java_script_enabled=False, base_url=address)
    try:
        bare = plain.new_page()
        bare.goto(f"{here[0]}/s/0/tree?kind=api&sort=execution")
        expect(bare.locator("[data-row]").first).to_be_visible()
        bare.locator("[name=q]").fill("linear")
        bare.locator(".filters button").click()
        expect(bare.locator("[data-row] .label").first).to_contain_text("linear")
        bare.locator("#panel [data-page]").click()
        expect(bare.locator("article.node h1")).to_be_visible()
        expect(bare.locator("#trend [data-says=one-slice]")).to_be_visible()
    finally:
        plain.close()


def test_names_from_a_dump_are_only_names_on_its_own_pages(
    dashboard: Dashboard, page: Page, dumps: Path
) -> None:
    dashboard.open(f"/dumps?path={quote(str(dumps / 'hostile' / 'golden'))}")
    page.locator("button[name=computes]").click()
    page.wait_for_url(re.compile(r"/dumps/\d+$"))
    dump = page.url.rpartition("/")[2]
    dashboard.open(f"/dumps/{dump}/overflow")
    dashboard.open(f"/dumps/{dump}/s/0/tree?unfold=all")
    rows = page.request.get(f"/dumps/{dump}/s/0/tree.json?unfold=all").json()["rows"]
    assert all(any(hostile in row["target"][0] for row in rows) for hostile in HOSTILE[:3])
    for row in rows:
        assert page.request.get(f"/dumps/{dump}/s/0/n/{row['row']}").status == 200, row["target"]
        if row["kind"] != "api":
            page.locator(f'[data-row="{row["row"]}"] .label').click()
            expect(page.locator(f'#panel article[data-node="{row["row"]}"]')).to_be_attached()
    dashboard.open(f"/dumps/{dump}/s/0/n/{rows[-1]['row']}")
    assert page.evaluate("window.PWN") is None
    dashboard.settle()
