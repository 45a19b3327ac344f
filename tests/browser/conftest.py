"""A real server with its worker, as processes, and a real browser in front of them."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dashboard import Dashboard, wait_before_acting
from hostile_dump import write_hostile_dumps
from playwright.sync_api import Browser, Page, expect, sync_playwright
from serving import serving

# The same browser without windows of its own, where there is one: it needs a third less processor time.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


# Other tests, and other processes, may have much to do meanwhile.
expect.set_options(timeout=20_000)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    wait_before_acting()
    with sync_playwright() as playwright:
        playwrights_own = playwright.chromium.executable_path
        chromium = next(filter(None, map(shutil.which, (*NAMES, playwrights_own))), None)
        if chromium is None:
            pytest.fail(
                "the browser tests need Chromium: apt-get install chromium-headless-shell "
                "(on Ubuntu: snap install chromium)"
            )
        browser = playwright.chromium.launch(executable_path=chromium, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def dumps(tmp_path_factory: pytest.TempPathFactory, unpacked: Callable[[str], Path]) -> Path:
    """A root with one folder for each pair of dumps."""
    root = tmp_path_factory.mktemp("dumps")
    for name, archive in (("perturbed", "msprobe/llama_stat_mix_perturb"), ("renamed", "msprobe/d4_renamed")):
        shutil.copytree(unpacked(archive), root / name)
    for name in ("llama4_golden_fp32", "llama4_perturb_L2_T3", "llama4_bf16"):
        shutil.copytree(unpacked(f"msit/{name}"), root / "tokens" / name)
    write_hostile_dumps(root)
    return root.resolve()


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server keeps what it knows."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="session")
def address(dumps: Path, data_dir: Path) -> Iterator[str]:
    """Where the server is; it runs for the whole session, with two comparisons made."""
    pairs = [(dumps / pair / "golden", dumps / pair / "target") for pair in ("perturbed", "renamed")]
    with serving(dumps, data_dir, pairs) as found:
        yield found


@pytest.fixture
def dashboard(browser: Browser, address: str) -> Iterator[Dashboard]:
    """A browser window of 1280 pixels; nothing may appear on its console."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, base_url=address)
    context.set_default_timeout(30_000)
    dashboard = Dashboard(context.new_page(), address)
    yield dashboard
    context.close()
    assert dashboard.complaints == []


@pytest.fixture
def page(dashboard: Dashboard) -> Page:
    return dashboard.page
