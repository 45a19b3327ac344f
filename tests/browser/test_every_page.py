"""Every kind of page, in every language: nothing fails, nobody is shut out, nothing is left untranslated."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from secrets import token_hex
from sqlite3 import connect
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from closeup_dumps import write_dumps
from dashboard import Dashboard
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from library.rollout.rollout_rows import SAMPLES
from playwright.sync_api import APIRequestContext, Browser, Page, Route
from sqlalchemy import Engine, delete, update
from working import ask_to_compare, wait_until

from firstdrift.catalogue.comparisons.records import cancel_comparison, compare_again
from firstdrift.catalogue.engine import writing
from firstdrift.catalogue.jobs.lease import beat
from firstdrift.catalogue.jobs.queue import SLICE_STEPS, Claim, claim_job, fail_job
from firstdrift.catalogue.tables import ComparisonEntry, SlicePairEntry, WorkerEntry
from firstdrift.errors import DumpUnreadableError
from firstdrift.wording.message import Message
from firstdrift_frontend.languages import LANGUAGES, SOURCE
from firstdrift_server.app import create_app
from firstdrift_server.routes import PAGES as ROUTERS
from firstdrift_server.settings import settings_from

LONG = 3600.0

LOCKED, UNFINISHED = "http://locked.localhost", "http://unfinished.localhost"
"""Servers: one asks for a token; on the other comparisons wait, are begun, have failed or were cancelled."""

PAGES = {
    "/": ["/", "/?show=dumps", "/?show=bin", "/?q=nowhere", f"{UNFINISHED}/"],
    "/board": ["/board", "/board?q=nowhere", f"{UNFINISHED}/board"],
    "/new": ["/new", "/new?golden={golden}&target={target}", "/new?golden=/nowhere&target={golden}/gone"],
    "/c/{comparison}": [
        *("/c/1", "/c/{tokens}"),
        *(
            f"{UNFINISHED}/c/{name}"
            for name in ("{waiting}", "{begun}", "{judged}", "{failed}", "{cancelled}")
        ),
        *(f"{UNFINISHED}/c/{name}" for name in ("{failed_at_once}", "{cancelled_at_once}")),
    ],
    "/c/{comparison}/rules": [
        "/c/1/rules",
        UNFINISHED + "/c/{waiting}/rules",
        UNFINISHED + "/c/{begun}/rules",
    ],
    "/c/{comparison}/share": ["/c/1/share"],
    "/c/{comparison}/s/{position}/tree": ["/c/1/s/0/tree", "/c/1/s/0/tree?sort=error&q=nowhere"],
    "/c/{comparison}/s/{position}/graph": ["/c/1/s/0/graph", "/c/2/s/0/graph?row=1&open=0"],
    "/c/{comparison}/s/{position}/n/{row}": ["/c/1/s/0/n/0", "/c/{near}/s/0/n/5"],
    "/c/{comparison}/s/{position}/unmatched": ["/c/1/s/0/unmatched", "/c/2/s/0/unmatched"],
    "/c/{comparison}/s/{position}/match": ["/c/1/s/0/match", "/c/2/s/0/match?show=all&suggest=1&{picked}"],
    "/c/{comparison}/s/{position}/likely": ["/c/1/s/0/likely", "/c/2/s/0/likely"],
    "/dumps": ["/dumps?path={unread}"],
    "/dumps/{dump}": ["{dump}"],
    "/dumps/{dump}/overflow": ["{dump}/overflow"],
    "/dumps/{dump}/s/{position}/tree": ["{dump}/s/0/tree"],
    "/dumps/{dump}/s/{position}/n/{row}": ["{dump}/s/0/n/1"],
    "/rollout": [
        *("/rollout", "/rollout?{rollout}", "/rollout?rollout=/nowhere", "/rollout?rollout={golden}"),
        "/rollout?{rollout}&dtype=float32&low=0.5",
    ],
    "/rollout/{number}": ["/rollout/2?{rollout}"],
    "/audit": ["/audit", "/audit?act=compared&comparison=1", "/audit?who=member:nobody"],
    "/help": ["/help", f"{LOCKED}/help"],
    "/login": [f"{LOCKED}/login"],
}
"""Addresses of each kind of page; what is in braces is known when the server runs."""

PIECES = {
    "/c/{comparison}/s/{position}/tree/rows",
    "/c/{comparison}/s/{position}/graph/layers",
    "/c/{comparison}/s/{position}/match/{part}",
    "/dumps/{dump}/s/{position}/tree/rows",
    "/share/{secret}",
}
"""What gives a part of a page that is open, or leads on to another."""

STATUS = {f"{LOCKED}/login": 401, "/no-such-page": 404, "/c/999999": 404, "/c/1/s/99/tree": 404} | {
    "/rollout?rollout=/nowhere": 404,
    "/rollout?rollout={golden}": 422,
    "/rollout/99?{rollout}": 404,
}
"""Of pages that say what is wrong; 200 of all others."""

ADDRESSES = [address for addresses in PAGES.values() for address in addresses]
ADDRESSES += [address for address in STATUS if address not in ADDRESSES]

TERMS = ("relative L2", "task statistics", "level mix", "framework pytorch", "Token [0-9]+")
"""What is said in English in every language: names of the field, and words of the files."""

FIND_ENGLISH = r"""(terms) => {
  const names = `.name, code, pre, kbd, .mono, time, [translate=no], script, style, [lang]:not(html)`;
  const known = new RegExp(`(?<![A-Za-z])(${terms.join("|")})(?![A-Za-z])`, "g");
  const english = /(?<![\w./-])[A-Za-z]{2,} [A-Za-z]{2,}(?![\w./-]*[\w/])/;
  const found = new Set();
  const look = (where, text) => {
    if (english.test(text.replace(known, "·"))) found.add(`${where}: ${text.trim().slice(0, 200)}`);
  };
  look("title", document.title);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const { parentElement, data } = walker.currentNode;
    if (!parentElement.closest(names)) look(parentElement.localName, data);
  }
  for (const attribute of ["title", "aria-label", "aria-description", "placeholder", "alt"])
    for (const element of document.querySelectorAll(`[${attribute}]`))
      if (!element.closest(names)) look(`${element.localName} ${attribute}`, element.getAttribute(attribute));
  return [...found];
}"""

FIND_BARRIERS = r"""async () => {
  const runOnly = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
  const where = { exclude: [[".js-plotly-plot"]] };
  const { violations } = await axe.run(where, { runOnly, resultTypes: ["violations"] });
  return violations
    .filter(({ impact }) => ["serious", "critical"].includes(impact))
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 200)).join(" | ")}`);
}"""

FIND_SPILLS = r"""() => {
  const clips = new Map();
  const isClipped = (element, card) => {
    if (!clips.has(element)) clips.set(element, getComputedStyle(element).overflowX !== "visible");
    return clips.get(element) || (element !== card && isClipped(element.parentElement, card));
  };
  const spills = (element) => {
    const card = element.closest(".card");
    const { width, right } = element.getBoundingClientRect();
    if (element === card || width < 2 || right <= card.getBoundingClientRect().right + 1) return false;
    return !isClipped(element.parentElement, card) && element.checkVisibility({ visibilityProperty: true });
  };
  return [...document.querySelectorAll(".card *:not(svg *, .menu-body, .menu-body *)")]
    .filter(spills)
    .map((element) => element.outerHTML.slice(0, 160));
}"""

BEGIN_WALK = r"""() => {
  const wanted = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]";
  const groups = new Set();
  const stops = [...document.querySelectorAll(wanted)].filter((element) => {
    if (element.disabled || element.tabIndex < 0 || element.closest("[inert]")) return false;
    if (!element.checkVisibility({ visibilityProperty: true })) return false;
    if (element.type !== "radio") return true;
    const chosen = document.querySelector(`input[name="${element.name}"]:checked`);
    return (!chosen || chosen === element) && !groups.has(element.name) && groups.add(element.name);
  });
  const told = (element) => {
    const { outlineStyle, outlineWidth, boxShadow, borderColor, backgroundColor } = getComputedStyle(element);
    const outline = outlineStyle === "none" ? 0 : parseFloat(outlineWidth);
    return JSON.stringify([outline, boxShadow, borderColor, backgroundColor]);
  };
  document.activeElement.blur();
  const before = stops.map(told);
  const name = (place) => stops[place].outerHTML.slice(0, 160).replace(/\s+/g, " ");
  const visited = [];
  const unseen = new Set();
  document.addEventListener("focusin", ({ target }) => {
    const place = stops.indexOf(target);
    if (place < 0) return;
    if (!visited.includes(place)) visited.push(place);
    if (told(target) === before[place]) unseen.add(name(place));
  });
  // A page that keeps itself up to date may replace what has not been reached yet.
  const isLeft = (place) => !visited.includes(place) && stops[place].isConnected;
  window.walk = () => ({
    left: stops.map((_, place) => place).filter(isLeft).map(name),
    visited,
    unseen: [...unseen],
  });
  return stops.length;
}"""


@pytest.fixture(scope="module")
def windows(browser: Browser, address: str) -> Iterator[dict[str, Dashboard]]:
    """A browser window for each language."""
    opened = {}
    for language in LANGUAGES:
        context = browser.new_context(
            viewport={"width": 1280, "height": 800}, base_url=address, locale=language
        )
        opened[language] = Dashboard(context.new_page(), address)
    yield opened
    for dashboard in opened.values():
        dashboard.page.context.close()


@pytest.fixture(scope="module")
def known(
    windows: dict[str, Dashboard], dumps: Path, data_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """What stands for the braces in the addresses."""
    request = windows[SOURCE].page.context.request
    pairs = {
        "tokens": (dumps / "tokens" / "llama4_golden_fp32", dumps / "tokens" / "llama4_perturb_L2_T3"),
        "near": write_dumps(dumps / "looked-at"),
        "deleted": (dumps / "renamed" / "golden", dumps / "renamed" / "golden"),
    }
    made = {name: compare(request, *pair) for name, pair in pairs.items()}
    wait_until(lambda: not request.get("/api/v1/jobs?only_open=true").json()["jobs"])
    assert request.post(f"/c/{made['deleted']}/delete", form={}).ok
    # Until it knows how large the dumps are, their list is made anew again and again.
    wait_until(lambda: not request.get("/.json?show=dumps").json()["is_live"])
    unread = write_dumps(dumps / "unread")[0]
    shutil.copytree(SAMPLES, dumps / "rollout", dirs_exist_ok=True)
    golden, target = map(str, pairs["near"])
    read = request.get(f"/dumps?path={quote(golden)}")
    rows = request.get("/api/v1/comparisons/2/slices/0/rows?unfold=all").json()["rows"]
    picked = next(row["golden"][0] for row in rows if row["golden"] and row["kind"] == "module")
    locked, unfinished = map(tmp_path_factory.mktemp, ("locked", "unfinished"))
    copy_catalogue(data_dir, unfinished)
    served = {
        LOCKED: settings_from(roots=[dumps], data_dir=locked, token=token_hex(16)),
        UNFINISHED: settings_from(roots=[dumps], data_dir=unfinished),
    }
    with ExitStack() as clients:
        for place, settings in served.items():
            app = create_app(settings)
            client = clients.enter_context(TestClient(app, base_url="http://localhost:8765"))
            for dashboard in windows.values():
                dashboard.page.context.route(f"{place}/**", answered_by(client))
        left = leave_unfinished(app.state.context.engine, made, pairs["near"])
        yield (
            made
            | {name: str(comparison) for name, comparison in left.items()}
            | {
                "golden": quote(golden),
                "target": quote(target),
                "unread": quote(str(unread)),
                "dump": urlsplit(read.url).path,
                "rollout": f"rollout={quote(f'{dumps}/rollout/rollout.jsonl')}"
                f"&trainer={quote(f'{dumps}/rollout/shifted.jsonl')}",
                "picked": f"golden={quote(picked)}",
            }
        )


def answered_by(client: TestClient) -> Callable[[Route], None]:
    """Let a server answer that has no address of its own."""

    def answer(route: Route) -> None:
        asked = urlsplit(route.request.url)
        headers = {name: route.request.headers.get(name, "") for name in ("accept", "accept-language")}
        found = client.get(f"{asked.path}?{asked.query}", headers=headers)
        route.fulfill(status=found.status_code, headers=dict(found.headers), body=found.content)

    return answer


def copy_catalogue(from_folder: Path, to_folder: Path) -> None:
    """Copy all that a server knows, which is still running."""
    name = "firstdrift.db"
    with closing(connect(from_folder / name)) as known, closing(connect(to_folder / name)) as copy:
        known.backup(copy)


def leave_unfinished(engine: Engine, made: Mapping[str, str], pair: tuple[Path, Path]) -> dict[str, int]:
    """Leave comparisons as a worker leaves them that is stopped; give one in each state."""
    of = {"failed_at_once": ask_to_compare(engine, *pair), "failed": 2, "begun": int(made["tokens"])}
    fail(engine, begin(engine, of["failed_at_once"]))
    fail(engine, begin(engine, again(engine, of["failed"])))
    begun = begin(engine, again(engine, of["begun"]))
    measuring = Message.of("stage.measuring", left=12)
    stage = Message.of("stage.of_slice", number=4, slices=8, stage=measuring)
    beat(engine, begun, LONG, 3 * SLICE_STEPS, 8 * SLICE_STEPS, stage)
    of |= {"cancelled": again(engine, 1), "cancelled_at_once": ask_to_compare(engine, *pair)}
    of |= {"judged": int(made["near"]), "waiting": ask_to_compare(engine, *pair)}
    with writing(engine) as session:
        cancel_comparison(session, of["cancelled"])
        cancel_comparison(session, of["cancelled_at_once"])
        compare_again(session, of["judged"], "msprobe")
        session.execute(update(SlicePairEntry).where(SlicePairEntry.position > 2).values(complete=False))
        session.execute(delete(WorkerEntry))
    return of


def again(engine: Engine, comparison: int) -> int:
    """Ask for a comparison again, of which nothing has been concluded yet."""
    with writing(engine) as session:
        compare_again(session, comparison)
        of_it = update(ComparisonEntry).where(ComparisonEntry.id == comparison)
        session.execute(of_it.values(findings=None, counts=None, finished_at=None))
    return comparison


def begin(engine: Engine, comparison: int) -> Claim:
    """Take the job of a comparison, as a worker does."""
    claim = claim_job(engine, "worker", lease=LONG)
    assert claim is not None
    assert claim.comparison_id == comparison
    return claim


def fail(engine: Engine, claim: Claim) -> None:
    """Give up on a job, as a worker does that finds a fault."""
    error = DumpUnreadableError(Message.of("dumps.not_permitted"), path="/data/golden")
    with writing(engine) as session:
        fail_job(session, claim, error.whole(), "Traceback", retry_after=None)


def compare(request: APIRequestContext, golden: Path, target: Path) -> str:
    made = request.post("/api/v1/comparisons", data={"golden": str(golden), "target": str(target)})
    assert made.status == 201, made.text()
    return made.headers["location"].rpartition("/")[2]


def test_the_list_has_every_kind_of_page() -> None:
    routes = {
        route.path
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute) and "GET" in route.methods
    }
    assert routes == PAGES.keys() | PIECES


@pytest.mark.parametrize("page_address", ADDRESSES)
def test_a_page_is_whole_in_every_language_and_for_every_visitor(
    windows: dict[str, Dashboard], known: dict[str, str], page_address: str
) -> None:
    status, wanted = STATUS.get(page_address, 200), page_address.format_map(known)
    problems: list[Any] = []
    for language, dashboard in windows.items():
        page = dashboard.page
        dashboard.complaints.clear()
        assert dashboard.open(wanted) == status
        if page.locator("[data-chart], [id$='chart'], #closeup").count():
            page.wait_for_load_state("networkidle")
        assert page.locator("html").get_attribute("lang") == language
        problems += page.evaluate(FIND_ENGLISH, TERMS) if language != SOURCE else barriers(page)
        dashboard.settle()
        own = f"{status} ("
        problems += [said for said in dashboard.complaints if status == 200 or own not in said]
    assert problems == []


def barriers(page: Page) -> list[str]:
    """Say what keeps people out who see little, or have no mouse."""
    page.evaluate(AXE_SCRIPT)
    found: list[str] = page.evaluate(FIND_BARRIERS)
    found += [f"it does not fit into its card: {element}" for element in page.evaluate(FIND_SPILLS)]
    stops: int = page.evaluate(BEGIN_WALK)
    # Beyond these the browser stops at areas that scroll, and at its own window.
    for presses in (stops, 5, 5, 5, 5):
        for _ in range(presses):
            page.keyboard.press("Tab")
        walk = page.evaluate("window.walk()")
        if not walk["left"]:
            break
    found += [f"Tab does not lead to {element}" for element in walk["left"]]
    found += [f"it cannot be seen that one is at {element}" for element in walk["unseen"]]
    visited = walk["visited"]
    first = visited.index(0) if 0 in visited else 0
    if visited[first:] + visited[:first] != sorted(visited):
        found.append(f"Tab leads to and fro: {visited}")
    return found
