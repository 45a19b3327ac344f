"""Colours mean the limit: a run that passes looks calm, whatever its largest error is."""

import re
from pathlib import Path

import pytest
from dashboard import Dashboard
from playwright.sync_api import Browser, Page, expect

DARKEST_SHARE = """
(canvas) => {
  const probe = document.createElement("span");
  document.body.append(probe);
  const stops = [2, 3, 4].map((stop) => {
    probe.style.color = `var(--heat-${stop})`;
    return getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map(Number);
  });
  probe.remove();
  const dark = [];
  for (let step = 0; step <= 20; step++) {
    const [one, other] = step < 10 ? [stops[0], stops[1]] : [stops[1], stops[2]];
    const share = (step % 10) / 10;
    dark.push(one.map((value, i) => value + (other[i] - value) * share));
  }
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let at = 0; at < data.length; at += 4) {
    const isNear = (tone) => tone.every((value, i) => Math.abs(value - data[at + i]) < 9);
    if (data[at + 3] === 255 && dark.some(isNear)) found += 1;
  }
  return found / (data.length / 4);
}
"""
"""Which share of a map is as dark as what fails."""


def compare(browser: Browser, address: str, golden: Path, target: Path) -> int:
    with browser.new_context() as context:
        asked = {"golden": str(golden), "target": str(target)}
        return int(context.request.post(f"{address}/api/v1/comparisons", data=asked).json()["id"])


@pytest.fixture(scope="module")
def passing(browser: Browser, address: str, dumps: Path) -> int:
    """A healthy run in bfloat16 against one in float32: many errors, none of them a fault's."""
    return compare(
        browser, address, dumps / "tokens" / "llama4_golden_fp32", dumps / "tokens" / "llama4_bf16"
    )


@pytest.fixture(scope="module")
def failing(browser: Browser, address: str, dumps: Path) -> int:
    golden, target = (dumps / "tokens" / name for name in ("llama4_golden_fp32", "llama4_perturb_L2_T3"))
    return compare(browser, address, golden, target)


def share_of_dark(page: Page) -> float:
    page.locator("#heat-map").scroll_into_view_if_needed()
    page.locator("#heat-map[data-drawn]").wait_for()
    page.mouse.move(0, 0)
    return float(page.locator("#heat-map canvas").evaluate(DARKEST_SHARE))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_passing_run_has_no_dark_cell(dashboard: Dashboard, page: Page, passing: int, theme: str) -> None:
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    dashboard.open(f"/c/{passing}")
    dashboard.wait_for_comparison()
    expect(page.locator(".cell-link.v-pass")).to_have_count(page.locator(".cell-link").count())
    assert share_of_dark(page) < 0.001
    dashboard.open(f"/board?c={passing}")
    cells = page.locator(".board-cell")
    expect(cells.first).to_be_visible()
    expect(page.locator(".board-cell:not(.v-pass)")).to_have_count(0)
    dashboard.open(f"/c/{passing}/s/0/tree?unfold=all")
    bars = page.locator(".row .error-cell[style]")
    expect(bars.first).to_be_visible()
    assert page.locator(".row:is(.v-error, .v-warning) .error-cell").count() == 0
    sizes = bars.evaluate_all("(all) => all.map((one) => Number(one.style.getPropertyValue('--size')))")
    assert max(sizes) <= 0.5, "a bar of a passing run reaches beyond the limit"


def test_the_layers_that_a_fault_has_reached_are_dark(dashboard: Dashboard, page: Page, failing: int) -> None:
    dashboard.open(f"/c/{failing}")
    dashboard.wait_for_comparison()
    assert share_of_dark(page) > 0.05


def test_one_limit_is_named_at_the_map_and_at_the_chart(
    dashboard: Dashboard, page: Page, failing: int
) -> None:
    dashboard.open(f"/c/{failing}")
    dashboard.wait_for_comparison()
    share_of_dark(page)
    chart = page.locator("#part-slices-legend data").first.inner_text()
    drawn = page.locator("#heat-legend .scale").first.inner_text()
    assert chart in drawn, f"{chart} at the chart, {drawn} at the map"
    expect(page.locator("#heat-legend .scale i")).to_have_count(2)
    assert re.search(r"\d", chart)


def dark_share_of_a_node(dashboard: Dashboard, page: Page, comparison: int) -> float:
    """Give which share of the map of model.layers.2.mlp is dark, in token 3."""
    dashboard.open(f"/c/{comparison}")
    dashboard.wait_for_comparison()
    listed = page.request.get(f"/api/v1/comparisons/{comparison}/slices/3/rows?unfold=all&count=1000").json()
    row = next(one["row"] for one in listed["rows"] if one["path"].endswith("model.layers.2.mlp"))
    dashboard.open(f"/c/{comparison}/s/3/n/{row}?tensor=output.0")
    expect(page.locator("#closeup-scale .scale i").first).to_be_visible()
    return float(page.locator("#closeup-map").evaluate(DARKEST_SHARE))


def test_the_map_of_a_node_is_dark_above_the_limit_and_nowhere_else(
    dashboard: Dashboard, page: Page, passing: int, failing: int
) -> None:
    assert dark_share_of_a_node(dashboard, page, passing) < 0.001
    assert dark_share_of_a_node(dashboard, page, failing) > 0.05
