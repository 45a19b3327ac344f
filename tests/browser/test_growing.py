"""Who looks at a dump that is still being written sees more of it as it comes."""

import re
from collections.abc import Callable
from pathlib import Path

from dashboard import Dashboard
from playwright.sync_api import Page, expect
from writers import Writer


def test_steps_appear_as_they_are_written_until_somebody_stops_it(
    dashboard: Dashboard, page: Page, dumps: Path, unpacked: Callable[[str], Path]
) -> None:
    dump = dumps / "growing"
    with Writer(unpacked("msprobe/llama_stat_mix_3steps") / "golden", dump) as writer:
        writer.write("step0/rank0")
        writer.write("step1/rank0", "half")
        dashboard.open(f"/dumps?path={dump}")
        page.locator("form[action='/dumps'] button.primary").click()
        page.wait_for_url(re.compile(r"/dumps/\d+$"))
        expect(page.locator("[data-says=growing]")).to_be_visible()
        links = page.locator("#part-slices tbody a")
        expect(links).to_have_count(1)
        expect(page.locator("#part-slices tbody tr")).to_have_count(2)
        writer.write("step1/rank0")
        writer.write("step2/rank0", "begun")
        expect(links).to_have_count(2)
        expect(page.locator("#part-slices tbody tr")).to_have_count(3)
        page.locator("[data-says=growing] form:last-of-type button").click()
        expect(page.locator("[data-says=growing-unfollowed]")).to_be_visible()
