"""Every kind of page, in every language: nothing fails, nobody is shut out, nothing is left untranslated."""

from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from closeup_dumps import write_dumps
from dashboard import Dashboard
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from playwright.sync_api import APIRequestContext, Browser, BrowserContext, Page, Route
from working import wait_until

from firstdrift_frontend.languages import LANGUAGES, SOURCE
from firstdrift_server.app import create_app
from firstdrift_server.pages import ROUTERS
from firstdrift_server.settings import settings_from

PAGES = {
    "/": ["/", "/?show=dumps", "/?show=bin", "/?q=nowhere"],
    "/board": ["/board", "/board?q=nowhere"],
    "/new": ["/new", "/new?golden={golden}&target={target}"],
    "/c/{comparison}": ["/c/1", "/c/{tokens}"],
    "/c/{comparison}/rules": ["/c/1/rules"],
    "/c/{comparison}/share": ["/c/1/share"],
    "/c/{comparison}/s/{position}/tree": ["/c/1/s/0/tree", "/c/1/s/0/tree?sort=error&q=nowhere"],
    "/c/{comparison}/s/{position}/n/{row}": ["/c/1/s/0/n/0", "/c/{near}/s/0/n/5"],
    "/c/{comparison}/s/{position}/unmatched": ["/c/1/s/0/unmatched", "/c/2/s/0/unmatched"],
    "/c/{comparison}/s/{position}/match": ["/c/1/s/0/match", "/c/2/s/0/match?show=all&suggest=1&{picked}"],
    "/dumps": ["/dumps?path={unread}"],
    "/dumps/{dump}": ["{dump}"],
    "/dumps/{dump}/overflow": ["{dump}/overflow"],
    "/dumps/{dump}/s/{position}/tree": ["{dump}/s/0/tree"],
    "/dumps/{dump}/s/{position}/n/{row}": ["{dump}/s/0/n/1"],
    "/login": ["http://locked.localhost/login"],
}
"""Addresses of each kind of page; what is in braces is known when the server runs."""

PIECES = {
    "/c/{comparison}/s/{position}/tree/rows",
    "/c/{comparison}/s/{position}/match/{part}",
    "/dumps/{dump}/s/{position}/tree/rows",
    "/share/{secret}",
}
"""What gives a part of a page that is open, or leads on to another."""

STATUS = {"http://locked.localhost/login": 401, "/no-such-page": 404, "/c/999999": 404, "/c/1/s/99/tree": 404}
"""Of pages that say what is wrong; 200 of all others."""

ADDRESSES = [address for addresses in PAGES.values() for address in addresses]
ADDRESSES += [address for address in STATUS if address not in ADDRESSES]

TERMS = (
    *("relative L2", "task statistics", "level mix", "framework pytorch", "Token [0-9]+"),
    "Micro step",
)
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
  window.walk = () => ({
    left: stops.map((_, place) => place).filter((place) => !visited.includes(place)).map(name),
    visited,
    unseen: [...unseen],
  });
  return stops.length;
}"""


@pytest.fixture(scope="module")
def contexts(
    browser: Browser, address: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, BrowserContext]]:
    """A browser for each language; at locked.localhost stands a server that asks for a token."""
    folder = tmp_path_factory.mktemp("locked")
    locked = create_app(settings_from(roots=[folder], data_dir=folder, token=token_hex(16)))
    with TestClient(locked, base_url="http://localhost:8765") as client:

        def answer(route: Route) -> None:
            headers = {"accept-language": route.request.headers.get("accept-language", "")}
            found = client.get(urlsplit(route.request.url).path, headers=headers)
            route.fulfill(status=found.status_code, headers=dict(found.headers), body=found.content)

        opened = {}
        for language in LANGUAGES:
            opened[language] = browser.new_context(
                viewport={"width": 1280, "height": 800}, base_url=address, locale=language
            )
            opened[language].route("http://locked.localhost/**", answer)
        yield opened
        for context in opened.values():
            context.close()


@pytest.fixture(scope="module")
def known(contexts: dict[str, BrowserContext], dumps: Path) -> dict[str, str]:
    """What stands for the braces in the addresses."""
    request = contexts[SOURCE].request
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
    golden, target = map(str, pairs["near"])
    read = request.get(f"/dumps?path={quote(golden)}")
    rows = request.get("/api/v1/comparisons/2/slices/0/rows?unfold=all").json()["rows"]
    picked = next(row["golden"][0] for row in rows if row["golden"] and row["kind"] == "module")
    return made | {
        "golden": quote(golden),
        "target": quote(target),
        "unread": quote(str(unread)),
        "dump": urlsplit(read.url).path,
        "picked": f"golden={quote(picked)}",
    }


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
    contexts: dict[str, BrowserContext], known: dict[str, str], address: str, page_address: str
) -> None:
    status, wanted = STATUS.get(page_address, 200), page_address.format_map(known)
    problems: list[Any] = []
    for language, context in contexts.items():
        dashboard = Dashboard(context.new_page(), address)
        answers: list[int] = []
        page = dashboard.page
        page.on("response", lambda answer, seen=answers: seen.append(answer.status))
        dashboard.open(wanted)
        if page.locator("[data-chart], [id$='chart'], #closeup").count():
            page.wait_for_load_state("networkidle")
        assert answers[0] == status
        assert page.locator("html").get_attribute("lang") == language
        problems += page.evaluate(FIND_ENGLISH, TERMS) if language != SOURCE else barriers(page)
        dashboard.settle()
        page.close()
        own = f"{status} ("
        problems += [said for said in dashboard.complaints if status == 200 or own not in said]
    assert problems == []


def barriers(page: Page) -> list[str]:
    """Say what keeps people out who see little, or have no mouse."""
    page.evaluate(AXE_SCRIPT)
    found: list[str] = page.evaluate(FIND_BARRIERS)
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
