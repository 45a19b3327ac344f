from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from dashboard import Dashboard
from hostile_dump import HOSTILE, write_hostile_rollout
from playwright.sync_api import APIRequestContext, Page, expect
from soak import record, rounds


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
    for row in [row for row in found["rows"] if row["kind"] != "api"][:: rounds(4, 1)]:
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


def said_everywhere(api: APIRequestContext, comparison: int) -> str:
    """Give hostile names to all that people can name; return the address of a link to the comparison."""
    place = f"/api/v1/comparisons/{comparison}"
    for name in HOSTILE[:: rounds(5, 1)]:
        text = name.encode("utf-8", "replace").decode()
        note = {"author": text[:60] or "x", "text": text}
        assert api.post(f"{place}/slices/0/rows/0/notes", data=note).status in {201, 422}
        assert api.post(f"{place}/match-sets", data={"name": text[:60]}).status in {201, 422}
        assert api.post(f"{place}/links", data={"hours": 1, "label": text[:200]}).status in {201, 422}
    made = api.post(f"{place}/links", data={"hours": 1, "label": HOSTILE[0]}).json()
    return str(made["address"])


def pages_of(api: APIRequestContext, comparison: int, dumps: Path) -> Iterator[str]:
    """Give the addresses of all kinds of pages on which names of a comparison stand."""
    target = dumps / "hostile" / "target"
    yield from ("/", "/help", f"/board?comparison={comparison}&comparison=1", "/new", "/dumps", "/audit")
    yield from (f"/new?from_golden={quote(str(dumps / 'hostile'))}", f"/dumps?path={quote(str(target))}")
    yield from (f"/c/{comparison}{page}" for page in ("", "/share", "/rules"))
    place = f"/c/{comparison}/s/0"
    yield from (
        f"{place}/{page}" for page in ("graph", "unmatched", "likely", "match?show=all", "tree?unfold=all")
    )
    rows = api.get(f"/api/v1/comparisons/{comparison}/slices/0/rows?unfold=all&count=1000").json()["rows"]
    yield from (f"{place}/n/{row['row']}" for row in rows[:: rounds(40, 1)])
    api.post("/api/v1/dumps", data={"path": str(target)})
    dump = api.get(f"/api/v1/dumps?path={quote(str(target))}").json().get("id", 1)
    yield from (
        f"/dumps/{dump}",
        f"/dumps/{dump}/overflow",
        f"/dumps/{dump}/s/0/tree?unfold=all",
        f"/dumps/{dump}/s/0/n/0",
    )
    write_hostile_rollout(dumps / "hostile" / "rollout.jsonl")
    rollout = quote(str(dumps / "hostile" / "rollout.jsonl"))
    yield from (
        f"/rollout?rollout={rollout}&trainer={rollout}",
        f"/rollout/0?rollout={rollout}&trainer={rollout}",
    )
    for match_set in api.get(f"/api/v1/comparisons/{comparison}/match-sets").json()["match_sets"][
        :: rounds(9, 1)
    ]:
        yield f"/c/{comparison}?match_set={match_set['id']}"
        yield f"{place}/match?match_set={match_set['id']}"


def test_names_never_run_on_any_page_nor_in_any_report(
    dashboard: Dashboard, page: Page, dumps: Path, tmp_path: Path
) -> None:
    golden, target = dumps / "hostile" / "golden", dumps / "hostile" / "target"
    api = page.request
    made = api.post(
        "/api/v1/comparisons", data={"golden": str(golden), "target": str(target), "note": HOSTILE[0]}
    )
    comparison = made.json()["id"]
    dashboard.open(f"/c/{comparison}")
    dashboard.wait_for_comparison()
    link = said_everywhere(api, comparison)
    addresses = [*pages_of(api, comparison, dumps), link]
    for address in addresses:
        status = dashboard.open(address)
        assert status < 500, address
        assert page.evaluate("window.PWN") is None, address
        # Nobody complains of what is not there: a page, or a file that has moved.
        dashboard.complaints = [said for said in dashboard.complaints if "status of 4" not in said]
        assert dashboard.complaints == [], address
    file = tmp_path / "report.html"
    file.write_bytes(api.get(f"/c/{comparison}/export?format=html").body())
    page.goto(file.as_uri())
    dashboard.settle()
    assert page.evaluate("window.PWN") is None
    assert page.locator("script").count() == 0
    page.goto("about:blank")
    record(
        "names",
        f"{len(HOSTILE)} names of modules, operators, arguments, notes, match sets, links, folders, sequences"
        f" on {len(addresses)} pages and in a report, in Chromium: 0 ran, 0 reports of the policy",
    )
