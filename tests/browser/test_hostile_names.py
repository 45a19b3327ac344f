from pathlib import Path
from urllib.parse import quote

from dashboard import Dashboard
from hostile_dump import HOSTILE
from playwright.sync_api import Page, expect


def test_names_from_dumps_never_run_whatever_page_they_are_on(
    dashboard: Dashboard, page: Page, dumps: Path
) -> None:
    golden, target = dumps / "hostile" / "golden", dumps / "hostile" / "target"

    def look() -> None:
        dashboard.settle()
        assert page.evaluate("window.PWN") is None

    dashboard.open(f"/new?golden={quote(str(golden))}&target={quote(str(target))}&note={quote(HOSTILE[0])}")
    expect(page.locator(".folders").first).to_contain_text("<img src=x onerror")
    look()
    page.locator(".submit button.primary").click()
    page.wait_for_url("**/c/*")
    dashboard.wait_for_comparison()
    look()
    comparison = page.url.rpartition("/")[2]
    expect(page.locator("main")).to_contain_text("onerror=window.PWN=1")

    found = page.request.get(f"/api/v1/comparisons/{comparison}/slices/0/rows?unfold=all&count=1000").json()
    names = "".join(name for row in found["rows"] for name in (*row["golden"], *row["target"]))
    assert all(hostile in names for hostile in HOSTILE if "\ud83d" not in hostile)
    dashboard.open("/")
    look()
    dashboard.open(f"/c/{comparison}/s/0/tree?unfold=all")
    expect(page.locator(".row[data-row]").first).to_be_visible()
    look()
    for row in (row for row in found["rows"] if row["kind"] != "api"):
        page.locator(f'[data-row="{row["row"]}"] .label').click()
        expect(page.locator(f'#panel article[data-node="{row["row"]}"]')).to_be_attached()
    look()
    for step in (f"/n/{found['rows'][0]['row']}", f"/n/{found['rows'][-1]['row']}", "/unmatched"):
        dashboard.open(f"/c/{comparison}/s/0{step}")
        look()
    dashboard.open(f"/c/{comparison}/s/0/match?show=all")
    for row in page.locator(".pane.of-golden .node-row").all()[:4]:
        row.click()
        expect(page.locator("#match-picked li")).to_have_count(1)
        look()
    for hostile in HOSTILE[:3]:
        dashboard.open(f"/c/{comparison}/s/0/tree?q={quote(hostile)}")
        look()
        dashboard.open(f"/?q={quote(hostile)}")
        look()
