"""Time the graph of a slice in a real browser: how soon it is there, and how smoothly it moves.

    .venv/bin/python benchmarks/graph_view.py --peer .venv-interop/bin

For Llamas of 4, 32 and 128 layers (about 550, 3,900 and 15,500 nodes a side; the dumps of
`against_graph_pages.py`) each run opens the page anew, in a fresh profile:

    open        from the address to the first boxes on the screen
    expand      from the key to what a module holds, on the screen
    collapse    likewise, of a module that is open
    next        from the key to the next failing node, on the screen
    pan         frames per second while the picture is moved 20 pixels a frame

Then a graph with as many open modules as a page begins with (up to 2,000 boxes) is moved, in three sizes.
Prints Markdown tables, and the load of the machine beside them. Needs Chromium, and the Python that has
msprobe (`make interop-venv`) to write the dumps.
"""

import argparse
import os
import shutil
import statistics
import time
from pathlib import Path

from against_graph_pages import BROWSERS, LAYERS, Figures, firstdrift, until_there, visitor, write_dumps
from playwright.sync_api import Browser, Page, sync_playwright

HERE = Path(__file__).resolve().parent
FRAMES = 180
ALL_OPEN = "0-100000"
PAN = """async ([size, count]) => {
  const script = document.querySelector('script[src*="/graph/page.js"]');
  const { canvas, look } = await import(new URL("view.js", script.src));
  const { zoomed } = await import(new URL("camera.js", script.src));
  const { w, h } = canvas.screen;
  look(zoomed(canvas.view, size ? size / canvas.view.k : 1, { x: w / 2, y: h / 2 }));
  await new Promise((done) => setTimeout(done, 300));
  const frames = [];
  let before = performance.now();
  for (let frame = 0; frame < count; frame += 1) {
    const { x, y, k } = canvas.view;
    look({ k, x: x + 12 * Math.sin(frame / 20), y: y - 16 * Math.cos(frame / 40) });
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - before);
    before = now;
  }
  return { frames, boxes: document.querySelectorAll("[data-key]").length, all: canvas.picture.boxes.length };
}"""
PRESS = """async ([key, selector]) => {
  const start = performance.now();
  const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true });
  document.activeElement.dispatchEvent(event);
  while (!document.querySelector(selector)) await new Promise((done) => setTimeout(done));
  await new Promise(requestAnimationFrame);
  return performance.now() - start;
}"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer", type=Path, default=HERE.parent / ".venv-interop" / "bin")
    parser.add_argument("--data", type=Path, default=HERE / "data" / "pages")
    parser.add_argument("--layers", type=int, nargs="*", default=LAYERS)
    parser.add_argument("--runs", type=int, default=5)
    chosen = parser.parse_args()
    with sync_playwright() as playwright:
        chromium = next(filter(None, map(shutil.which, BROWSERS)))
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        print("| layers | open | expand | collapse | next | pan | load |\n|---|---|---|---|---|---|---|")
        for layers in chosen.layers:
            folder = write_dumps(chosen.peer, chosen.data, layers)
            with firstdrift(folder, folder / "golden", folder / "target") as tree:
                address = tree.removesuffix("tree") + "graph"
                report(layers, measure(browser, address, chosen.runs))
                large(browser, address)


def measure(browser: Browser, address: str, runs: int) -> Figures:
    """Open the page as often as asked; the first time nobody counts."""
    figures = Figures()
    for run in range(runs + 1):
        with visitor(browser) as (page, _):
            found = one_visit(page, address)
        for name, value in found.items() if run else ():
            figures.add(name, value)
    return figures


def one_visit(page: Page, address: str) -> dict[str, float]:
    """Open the page, expand and collapse a module, go to the next failing node, and move the picture."""
    start = time.perf_counter()
    page.goto(address, wait_until="commit")
    until_there(page.locator("[data-key]"))
    found = {"open": 1000 * (time.perf_counter() - start)}
    page.wait_for_load_state("networkidle")
    closed = page.locator('[role="treeitem"][aria-expanded="false"]').first
    row = closed.get_attribute("data-row")
    closed.dispatch_event("click")
    page.wait_for_timeout(200)
    found["expand"] = page.evaluate(PRESS, ["Enter", f'[data-row="{row}"][aria-expanded="true"]'])
    found["collapse"] = page.evaluate(PRESS, ["Enter", f'[data-row="{row}"][aria-expanded="false"]'])
    other = f'[aria-selected="true"][data-row]:not([data-row="{row}"])'
    found["next"] = page.evaluate(PRESS, ["n", other])
    frames = page.evaluate(PAN, [0, FRAMES])["frames"]
    return found | {"pan": 1000 / statistics.mean(frames)}


def report(layers: int, figures: Figures) -> None:
    """Print the medians."""
    said = [f"{figures.median(name):.0f} ms" for name in ("open", "expand", "collapse", "next")]
    print(
        f"| {layers} | {' | '.join(said)} | {figures.median('pan'):.0f} /s | {os.getloadavg()[0]:.1f} |",
        flush=True,
    )


def large(browser: Browser, address: str) -> None:
    """Move a graph of which all is open, as far as a page begins with it."""
    with visitor(browser) as (page, _):
        page.goto(f"{address}?open={ALL_OPEN}")
        until_there(page.locator("[data-key]"))
        page.wait_for_timeout(500)
        for size in (1, 0.5, 0.2):
            found = page.evaluate(PAN, [size, FRAMES])
            frames = sorted(found["frames"])
            boxes = f"{found['all']:,} boxes at {size:.0%}, {found['boxes']} of them in the page"
            rate, slow = 1000 / statistics.mean(frames), frames[-FRAMES // 20]
            pace = f"{rate:.0f} /s, 95 % of frames under {slow:.0f} ms"
            print(f"|  | {boxes} |||| {pace} | {os.getloadavg()[0]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
