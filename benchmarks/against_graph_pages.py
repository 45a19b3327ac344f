"""Time the tree page against the graph page of msprobe (TensorBoard), in a real browser, in turn.

    .venv/bin/python benchmarks/against_graph_pages.py --peer .venv-interop/bin

For Llamas of 4, 32 and 128 layers (about 550, 3,900 and 15,500 nodes a side) the real msprobe writes two
dumps and builds its graph database; firstdrift compares the same dumps. Each run opens both pages anew:

    first view      from the address to the first nodes of both sides on the screen
    expand          from opening a node to its children on the screen
    next bad        from the key to another selected row (msprobe has no such key)
    deep link       from the address of a node to its numbers on the screen (msprobe has no such address)
    first load      bytes received until the first view

Then a tree of 100,000 rows is scrolled from end to end: the longest frame, and how many took over 50 ms.
Prints Markdown tables. Needs Chromium, and the Python that has msprobe and TensorBoard (`make interop-venv`).
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, sync_playwright

HERE = Path(__file__).resolve().parent
DUMP_LLAMA = HERE.parent / "examples" / "dump_llama.py"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SCREEN = {"width": 1920, "height": 1080}
LAYERS = (4, 32, 128)
LARGE = 100_000
WAIT_S = 120

SCROLL = """async () => {
  const body = document.getElementById("tree-body");
  const frames = [];
  let before = performance.now();
  for (let top = 0; top < body.scrollHeight && frames.length < 600; top += body.scrollHeight / 600) {
    body.scrollTop = top;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - before);
    before = now;
  }
  return frames;
}"""


@dataclass(slots=True)
class Figures:
    """Milliseconds (and bytes) of every run, by what was measured."""

    taken: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        """Note one run."""
        self.taken.setdefault(name, []).append(value)

    def median(self, name: str) -> float | None:
        """Return the run in the middle; None if there is none."""
        return statistics.median(self.taken[name]) if name in self.taken else None


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
        print("| layers | measured | msprobe | firstdrift | ratio |\n|---|---|---|---|---|")
        for layers in chosen.layers:
            report(
                layers, *both(browser, chosen.peer, dumps_of(chosen.peer, chosen.data, layers), chosen.runs)
            )
        scroll(browser, chosen.data)


def both(browser: Browser, peer: Path, folder: Path, runs: int) -> tuple[Figures, Figures]:
    """Open both pages in turn, as often as asked."""
    theirs, ours = Figures(), Figures()
    with tensorboard(peer, folder) as graph, firstdrift(folder, folder / "golden", folder / "target") as tree:
        measure_theirs(browser, graph, Figures())  # both servers read their databases once
        measure_ours(browser, tree, Figures())
        for _ in range(runs):
            measure_theirs(browser, graph, theirs)
            measure_ours(browser, tree, ours)
    return theirs, ours


def measure_theirs(browser: Browser, address: str, figures: Figures) -> None:
    """Open the graph page and expand the root module, which opens it on both sides."""
    with visitor(browser) as (page, received):
        start = time.perf_counter()
        page.goto(f"{address}#graph_ascend", wait_until="commit")
        # The page of the plugin is a frame inside a frame that TensorBoard makes.
        nodes = page.frame_locator("iframe").locator("svg text:visible")
        shown = nodes.filter(has_text="Module.model.LlamaModel.forward.0")
        until_there(shown, 2)
        figures.add("first view", 1000 * (time.perf_counter() - start))
        figures.add("first load", received())
        start = time.perf_counter()
        shown.nth(0).dblclick()
        until_there(nodes.filter(has_text="layers.0.LlamaDecoderLayer.forward.0"), 2)
        figures.add("expand", 1000 * (time.perf_counter() - start))


def measure_ours(browser: Browser, address: str, figures: Figures) -> None:
    """Open the tree, expand a layer, go to the next bad row, and open a node by its address."""
    with visitor(browser) as (page, received):
        start = time.perf_counter()
        page.goto(address, wait_until="commit")
        until_there(page.locator('[role="row"][data-row]'))
        figures.add("first view", 1000 * (time.perf_counter() - start))
        page.wait_for_load_state("networkidle")
        figures.add("first load", received())
        row = page.locator('[role="row"][aria-level="3"][aria-expanded="false"]').first
        place = int(row.get_attribute("data-place") or 0)
        number = row.get_attribute("data-row")
        start = time.perf_counter()
        row.locator(".twist").click()
        until_there(page.locator(f'[data-place="{place + 1}"][data-parent="{number}"]'))
        figures.add("expand", 1000 * (time.perf_counter() - start))
        selected = page.locator('[role="row"][aria-selected="true"]')
        before = selected.get_attribute("data-row")
        start = time.perf_counter()
        page.keyboard.press("n")
        until_there(page.locator(f'[role="row"][aria-selected="true"]:not([data-row="{before}"])'))
        figures.add("next bad", 1000 * (time.perf_counter() - start))
        link = page.url
    with visitor(browser) as (page, _):
        start = time.perf_counter()
        page.goto(link, wait_until="commit")
        until_there(page.locator("#panel article"))
        figures.add("deep link", 1000 * (time.perf_counter() - start))


def until_there(nodes: Locator, count: int = 1) -> None:
    """Wait until a page shows so many nodes. Playwright's own waits look only every 100 to 500 ms."""
    end = time.perf_counter() + WAIT_S
    while nodes.count() < count:
        if time.perf_counter() > end:
            sys.exit(f"{nodes} did not appear within {WAIT_S} s")
        time.sleep(0.002)


def report(layers: int, theirs: Figures, ours: Figures) -> None:
    """Print the medians."""
    for name in ours.taken:
        own, other = ours.median(name), theirs.median(name)
        unit = "kB" if name == "first load" else "ms"
        size = 1000 if unit == "kB" else 1
        said = "none" if other is None else f"{other / size:,.0f} {unit}"
        ratio = "" if other is None or not own else f"{other / own:.1f}"
        print(f"| {layers} | {name} | {said} | {(own or 0) / size:,.0f} {unit} | {ratio} |", flush=True)


def scroll(browser: Browser, data: Path) -> None:
    """Scroll through a tree of 100,000 rows and print how long its frames took."""
    folder = data / "large"
    if not folder.is_dir():
        write_large(folder, LARGE)
    with firstdrift(folder, folder / "golden", folder / "target") as address, visitor(browser) as (page, _):
        page.goto(f"{address}?unfold=all")
        page.locator('[role="row"][data-row]').first.wait_for()
        page.wait_for_load_state("networkidle")
        rows = int(page.locator("#tree-body").get_attribute("aria-rowcount") or 0) - 1
        frames = sorted(page.evaluate(SCROLL))
    slow = sum(1 for frame in frames if frame > 50)
    print(
        f"\n{rows:,} rows scrolled in {len(frames)} frames: median {statistics.median(frames):.0f} ms, "
        f"99 % under {frames[int(0.99 * len(frames))]:.0f} ms, longest {frames[-1]:.0f} ms, {slow} over 50 ms"
    )


@contextmanager
def visitor(browser: Browser) -> Iterator[tuple[Page, Callable[[], float]]]:
    """Give a page in a fresh profile, and how many bytes it has received."""
    context = browser.new_context(viewport=SCREEN)
    page = context.new_page()
    sizes: list[float] = []
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    try:
        yield page, lambda: sum(sizes)
    finally:
        context.close()


def dumps_of(peer: Path, data: Path, layers: int) -> Path:
    """Have the real msprobe write both dumps and its graph database, unless they are there."""
    folder = write_dumps(peer, data, layers)
    if not (folder / "graph").is_dir():
        sides = [f"{folder / side}/step0/rank0" for side in ("golden", "target")]
        run([peer / "msprobe", "graph_visualize", "-gp", sides[0], "-tp", sides[1], "-o", folder / "graph"])
    return folder


def write_dumps(peer: Path, data: Path, layers: int) -> Path:
    """Have the real msprobe write both dumps, unless they are there."""
    folder = data / f"layers{layers}"
    fault = ["--scale-weight", f"model.layers.{layers // 2}.mlp.down_proj=3"]
    for side, planted in (("golden", []), ("target", fault)):
        if not (folder / side).is_dir():
            size = ["--layers", str(layers), "--hidden", "64"]
            run([peer / "python", DUMP_LLAMA, folder / side, *size, *planted])
    return folder


def run(command: list[str | Path]) -> None:
    """Run a command in silence; what it says is shown if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")


@contextmanager
def tensorboard(peer: Path, folder: Path) -> Iterator[str]:
    """Serve msprobe's graph database."""
    port = free_port()
    command = [peer / "tensorboard", "--logdir", folder / "graph", "--host", "127.0.0.1", "--port", str(port)]
    with process(command):
        yield wait_for(f"http://127.0.0.1:{port}/")


@contextmanager
def firstdrift(folder: Path, golden: Path, target: Path) -> Iterator[str]:
    """Compare two dumps and serve the result; give the address of its first tree."""
    port = free_port()
    command = [Path(sys.executable).parent / "firstdrift", "serve", folder, "--port", str(port)]
    command.append("--no-token")
    with process([*command, "--data-dir", folder / "firstdrift", "--compare", golden, target]):
        address = wait_for(f"http://127.0.0.1:{port}/")
        while json_of(f"{address}api/v1/comparisons/1")["state"] != "done":
            time.sleep(0.2)
        yield f"{address}c/1/s/0/tree"


@contextmanager
def process(command: list[str | Path]) -> Iterator[None]:
    """Keep a server running while the block runs."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = subprocess.Popen(command, env=os.environ | {"PYTHONUNBUFFERED": "1"}, **quiet)
    try:
        yield
    finally:
        started.terminate()
        started.wait(30)


def wait_for(address: str) -> str:
    """Wait until a server answers."""
    for _ in range(600):
        try:
            with urllib.request.urlopen(address, timeout=5):  # noqa: S310 - our own server
                return address
        except OSError:
            time.sleep(0.1)
    sys.exit(f"nothing answers at {address}")


def json_of(address: str) -> dict[str, object]:
    """Ask our own server for data."""
    with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 - our own server
        found: dict[str, object] = json.load(answer)
    return found


def free_port() -> int:
    """Find a port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def write_large(folder: Path, rows: int) -> None:
    """Write two dumps in msprobe's format with so many nodes; every hundredth layer of one differs."""
    parts = {f"{kind}.{name}": 4 for kind in ("self_attn", "mlp") for name in ("a", "b", "c", "d", "e")}
    layers = rows // (1 + len(parts) * 5)
    for side in ("golden", "target"):
        data, tree = {}, {"Module.model.Model.forward.0": None}
        for layer in range(layers):
            above = f"Module.model.layers.{layer}.Layer.forward.0"
            tree[above] = "Module.model.Model.forward.0"
            factor = 2.0 if side == "target" and layer % 100 == 50 else 1.0
            for number, (part, operators) in enumerate(parts.items()):
                module = f"Module.model.layers.{layer}.{part}.Part.forward.0"
                tree[module] = above
                data[module] = tensors(1.0, factor)
                for operator in range(operators):
                    name = f"Functional.op{operator}.{layer * len(parts) + number}.forward"
                    tree[name] = module
                    data[name] = tensors(1.0, factor)
            data[above] = tensors(1.0, factor)
        data["Module.model.Model.forward.0"] = tensors(1.0, 1.0)
        place = folder / side
        place.mkdir(parents=True)
        about = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None}
        (place / "dump.json").write_text(json.dumps(about | {"data": data}))
        (place / "construct.json").write_text(json.dumps(tree))
        (place / "stack.json").write_text("{}")


def tensors(given: float, made: float) -> dict[str, object]:
    """Describe a node that takes one tensor and makes one, as msprobe does."""

    def described(norm: float) -> dict[str, object]:
        numbers = {"Max": norm, "Min": -norm, "Mean": norm / 8, "Norm": norm * 4, "requires_grad": True}
        return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4, 4]} | numbers

    return {"input_args": [described(given)], "input_kwargs": {}, "output": [described(made)]}


if __name__ == "__main__":
    main()
