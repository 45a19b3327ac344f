"""Take the screenshots of README and docs from the main example.

    .venv/bin/python docs/screenshots.py [DIRECTORY]

The path of the dumps shows on the pages: give a copy of `examples/msit-llama12` in a place fit to be seen.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Browser, FloatRect, ViewportSize, sync_playwright

HERE = Path(__file__).parent
EXAMPLE = HERE.parent / "examples" / "msit-llama12"
SIZE: ViewportSize = {"width": 1280, "height": 860}


def main() -> None:
    """Compare the example, open its pages, and save what a visitor sees."""
    example = Path(sys.argv[1]) if len(sys.argv) > 1 else EXAMPLE
    golden, target = example / "llama12_golden_fp32", example / "llama12_bf16_bad_L7_T2"
    with tempfile.TemporaryDirectory() as data, sync_playwright() as playwright:
        command = [
            sys.executable,
            "-m",
            "firstdrift.cli",
            "serve",
            str(example),
            "--port",
            "0",
            "--data-dir",
            data,
            "--no-token",
        ]
        server = subprocess.Popen(  # noqa: S603
            [*command, "--compare", str(golden), str(target), "--compare", str(golden), str(golden)],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            url = _address(server)
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
            )
            _take(browser, url)
        finally:
            server.terminate()
            server.wait()


def _address(server: "subprocess.Popen[str]") -> str:
    for line in server.stdout or ():
        if found := re.search(r"http://\S+", line):
            return found[0]
    raise SystemExit("the server did not start")


def _take(browser: Browser, url: str) -> None:
    page = browser.new_page(viewport=SIZE, device_scale_factor=1, locale="en-US")

    def keep(name: str, height: int = SIZE["height"]) -> None:
        page.wait_for_load_state("networkidle")
        clip: FloatRect = {"x": 0, "y": 0, "width": SIZE["width"], "height": height}
        page.screenshot(path=HERE / "images" / f"{name}.png", clip=clip)

    page.goto(f"{url}c/1")
    page.get_by_role("link", name="Open in the tree").wait_for(timeout=60_000)  # all slices are compared
    page.reload()
    page.locator(".js-plotly-plot").first.wait_for()
    keep("comparison")
    page.get_by_role("link", name="Open in the tree").click()
    page.get_by_role("treegrid").wait_for()
    keep("tree")
    page.keyboard.press("Enter")
    page.wait_for_url("**/n/*")
    page.locator("#closeup-values .is-here").first.wait_for()
    page.locator("#closeup").evaluate("element => scrollBy(0, element.getBoundingClientRect().top - 60)")
    keep("node")
    rows = page.request.get(f"{url}api/v1/comparisons/1/slices/2/rows?unfold=all&count=1000").json()["rows"]
    node = next(row for row in rows if row["path"] == "model.layers.7.mlp")
    picked = urlencode({"golden": node["golden"][0], "target": node["target"][0]})
    page.goto(f"{url}c/1/s/2/match?show=all&{picked}")
    page.locator("#effect-card").wait_for()
    keep("match")
    page.goto(f"{url}board?axis=token")
    page.locator("#board-table").wait_for()
    keep("board", 470)


if __name__ == "__main__":
    main()
