"""The charts of a comparison: by mouse, by keyboard, and while it is being measured."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import uvicorn
from dashboard import Dashboard
from messages import like
from playwright.sync_api import Browser, FloatRect, Locator, Page, expect
from working import wait_until, worker

from firstdrift.catalogue.comparisons.records import get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import slice_pairs_of
from firstdrift.catalogue.engine import open_engine, reading
from firstdrift.wording.text import word
from firstdrift_server.app import create_app
from firstdrift_server.settings import Settings, settings_from
from firstdrift_worker.main import run

SHIFTS = """
window.shifts = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifts += entry.value;
}).observe({ type: "layout-shift", buffered: true });
"""


@pytest.fixture(scope="module")
def comparison(browser: Browser, address: str, dumps: Path) -> int:
    """A comparison of eight tokens, of which the fourth is the first bad one."""
    golden, target = (dumps / "tokens" / name for name in ("llama4_golden_fp32", "llama4_perturb_L2_T3"))
    with browser.new_context() as context:
        asked = {"golden": str(golden), "target": str(target)}
        return int(context.request.post(f"{address}/api/v1/comparisons", data=asked).json()["id"])


@pytest.fixture
def tokens(dashboard: Dashboard, page: Page, comparison: int) -> Page:
    """Its page."""
    dashboard.open(f"/c/{comparison}")
    dashboard.wait_for_comparison()
    return page


def drawn(page: Page, figure: str) -> Locator:
    """Bring a figure into view and wait until it is drawn."""
    page.locator(figure).scroll_into_view_if_needed()
    page.locator(f"{figure}[data-drawn]").wait_for()
    return page.locator(figure)


def box(place: Locator) -> FloatRect:
    found = place.bounding_box()
    assert found is not None
    return found


def selected_row(page: Page) -> str:
    page.wait_for_url(re.compile(r"/s/\d+/tree\?"))
    row = page.locator('[role="row"][aria-selected="true"]')
    expect(row).to_be_visible()
    return f"{urlsplit(page.url).path} {row.inner_text()}"


def test_the_map_is_walked_by_keyboard_from_the_first_bad_cell_to_the_tree(tokens: Page) -> None:
    canvas = drawn(tokens, "#heat-map").locator("canvas")
    canvas.focus()
    tip = tokens.locator("#heat-tip")
    expect(tip).to_contain_text("3, model.layers.2")
    expect(tip.locator("span")).to_have_count(5)  # its limit, and that it is the first bad, are lines
    tokens.keyboard.press("ArrowDown")
    tokens.keyboard.press("ArrowRight")
    expect(tip).to_contain_text("4, model.layers.3")
    expect(tip).to_contain_text(word("node_class", "propagated"))
    tokens.keyboard.press("Enter")
    assert re.match(r"/c/\d+/s/4/tree 3\b", selected_row(tokens))


def test_the_map_answers_the_mouse_and_a_part_of_it_is_zoomed_into(tokens: Page) -> None:
    canvas = drawn(tokens, "#heat-map").locator("canvas")
    where = box(canvas)
    right = where["x"] + where["width"] - 20
    tokens.mouse.move(right - 200, where["y"] + 60)
    tokens.mouse.down()
    tokens.mouse.move(right - 100, where["y"] + 90, steps=3)
    tokens.mouse.move(right, where["y"] + 150, steps=3)
    tokens.mouse.up()
    zoomed = tokens.locator("#heat-zoom")
    expect(zoomed.locator(".main-svg").first).to_be_visible()
    assert re.search(r"[?&]zoom=\d+\.\d+\.\d+\.3(&|$)", tokens.url)
    tokens.reload()
    drawn(tokens, "#heat-map")
    expect(zoomed.locator(".main-svg").first).to_be_visible()
    tokens.locator("[data-close-zoom]").click()
    expect(zoomed).to_be_hidden()
    assert "zoom" not in tokens.url
    where = box(canvas)
    canvas.hover(position={"x": where["width"] - 20, "y": 5})
    expect(tokens.locator("#heat-tip")).to_contain_text("0, model.layers.3")
    canvas.click(position={"x": where["width"] - 20, "y": 5})
    assert re.match(r"/c/\d+/s/0/tree 3\b", selected_row(tokens))


def test_a_point_of_the_scatter_leads_to_its_node(tokens: Page) -> None:
    figure = drawn(tokens, "#scatter")
    expect(figure.locator(".legendtext", has_text=re.compile(r"\b3\b"))).to_be_visible()
    point = box(figure.locator(".scatterlayer .trace").last.locator(".point").first)
    tokens.mouse.move(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
    name = figure.locator(".hoverlayer text").first
    expect(name).to_contain_text("layers.2")
    expect(name).to_contain_text(word("node_class", "source"))
    tokens.mouse.down()
    tokens.mouse.up()
    tokens.wait_for_url(re.compile(r"/s/3/n/\d+$"))
    expect(tokens.locator("article")).to_contain_text(word("node_class", "source"))


def test_the_scale_of_the_chart_is_part_of_the_address(tokens: Page) -> None:
    figure = drawn(tokens, "#metric-chart")
    ticks = figure.locator(".yaxislayer-above text")
    expect(ticks.filter(has_text=re.compile("^1e-4")).first).to_be_visible()
    link = tokens.locator("a[data-scale=linear]")
    link.click()
    expect(link).to_have_attribute("aria-current", "true")
    expect(ticks.filter(has_text=re.compile(r"^\d+\s%$")).first).to_be_visible()
    assert parse_qs(urlsplit(tokens.url).query)["scale"] == ["linear"]
    tokens.reload()
    expect(link).to_have_attribute("aria-current", "true")
    drawn(tokens, "#metric-chart")
    expect(ticks.filter(has_text=re.compile(r"^\d+\s%$")).first).to_be_visible()


@contextmanager
def serving(settings: Settings) -> Iterator[str]:
    """Serve pages without a worker; give their address."""
    server = uvicorn.Server(uvicorn.Config(create_app(settings), host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


def measure_some(settings: Settings, golden: Path, target: Path, page: Page, address: str) -> None:
    """Ask for a comparison, and let a worker stop when it has measured the first of its slices."""
    asked = {"golden": str(golden), "target": str(target)}
    assert page.request.post(f"{address}/api/v1/comparisons", data=asked).status == 201
    stopping = threading.Event()
    work = {"processes": 1, "until": stopping, "lease": 1.0}
    thread = threading.Thread(target=run, args=(settings.database,), kwargs=work)
    thread.start()
    engine = open_engine(settings.database)

    def is_begun() -> bool:
        with reading(engine) as session:
            return bool(slice_pairs_of(session, 1)) and get_comparison(session, 1).job.total > 0

    wait_until(is_begun)
    stopping.set()
    thread.join(60)
    engine.dispose()


def test_a_page_shows_what_is_known_so_far_and_grows_without_being_loaded_again(
    browser: Browser, tmp_path: Path, unpacked: Callable[[str], Path]
) -> None:
    golden, target = unpacked("msit/llama12_golden_fp32"), unpacked("msit/llama12_perturb_L7_T2")
    settings = settings_from(roots=[golden, target], data_dir=tmp_path)
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    with serving(settings) as address, context:
        dashboard = Dashboard(context.new_page(), address)
        page = dashboard.page
        page.add_init_script(SHIFTS)
        measure_some(settings, golden, target, page, address)
        dashboard.open(f"{address}/c/1")
        expect(page.locator(".so-far")).to_be_visible()
        cells = page.locator(".cell-link").count()
        assert cells == 6
        assert 0 < page.locator(".is-pending").count() < 6
        drawn(page, "#heat-map")
        page.evaluate("document.querySelector('#heat-map canvas').dataset.mark = 'same'")
        page.evaluate("window.shifts = 0")
        with worker(settings.database):
            expect(page.locator(".is-pending")).to_have_count(0, timeout=60_000)
            expect(page.locator(".finding .sentence")).to_contain_text(
                re.compile(like("finding.first_token")), timeout=60_000
            )
        expect(page.locator(".so-far")).to_have_count(0)
        assert page.locator(".cell-link").count() == cells
        canvas = page.locator("#heat-map canvas")
        assert canvas.get_attribute("data-mark") == "same", "the map was made anew"
        canvas.focus()
        expect(page.locator("#heat-tip")).to_contain_text("2, model.layers.7")
        assert page.evaluate("window.shifts") < 0.1
        assert dashboard.complaints == []


def test_map_and_charts_take_the_colours_of_the_other_theme(tokens: Page) -> None:
    drawn(tokens, "#metric-chart")
    drawn(tokens, "#heat-map")
    shown = "() => [getComputedStyle(document.querySelector('#metric-chart text')).fill, "
    shown += "document.querySelector('#heat-map canvas').toDataURL()]"
    before = tokens.evaluate(shown)
    tokens.locator("[data-theme-toggle]").click()
    tokens.wait_for_function(
        f"(before) => ({shown})().every((after, which) => after !== before[which])", arg=before
    )
    chosen = tokens.locator("html").get_attribute("data-theme")
    assert chosen in ("light", "dark")
    tokens.goto("/")
    assert tokens.locator("html").get_attribute("data-theme") == chosen
