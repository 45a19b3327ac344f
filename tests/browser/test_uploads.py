"""Dumps from the visitor's own machine: dropped or chosen, unpacked, and compared."""

import base64
import io
import os
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from dashboard import Dashboard
from messages import like
from playwright.sync_api import Page, Route, expect

DROP = """
([selector, files]) => {
  const transfer = new DataTransfer();
  for (const [name, text] of files)
    transfer.items.add(new File([Uint8Array.from(atob(text), (one) => one.charCodeAt(0))], name));
  const target = document.querySelector(selector);
  for (const kind of ["dragover", "drop"])
    target.dispatchEvent(new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true }));
}
"""


def packed(folder: Path) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        archive.add(folder, folder.name)
    return file.getvalue()


def forgive(dashboard: Dashboard) -> None:
    """Take no notice of what the browser says of uploads that a test lets fail."""
    dashboard.settle()
    dashboard.complaints[:] = [said for said in dashboard.complaints if "/api/v1/uploads" not in said]


@pytest.fixture
def perturbed(unpacked: Callable[[str], Path]) -> Path:
    return unpacked("msprobe/llama_stat_mix_perturb")


def test_two_archives_are_dropped_and_compared(dashboard: Dashboard, page: Page, perturbed: Path) -> None:
    dashboard.open("/new")
    files = [
        [f"{side}-run.tar.gz", base64.b64encode(packed(perturbed / side)).decode()]
        for side in ("golden", "target")
    ]
    page.evaluate(DROP, ["section[data-side=golden]", files])
    for side in ("golden", "target"):
        expect(page.locator(f"#{side}")).to_have_value(re.compile(rf"/uploads/{side}-run(-\d)?$"))
        expect(page.locator(f"#part-said-{side}")).to_contain_text("msprobe")
    expect(page.locator("#uploads > ul > li")).to_have_count(2)
    expect(page.locator("#uploads [data-kind=done] [data-state]").first).to_contain_text("msprobe")
    page.locator(".submit button.primary").click()
    page.wait_for_url(re.compile(r"/c/\d+$"))
    dashboard.wait_for_comparison()
    expect(page.locator(".sentence")).to_contain_text("down_proj")


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_is_dropped_as_from_a_file_manager(
    dashboard: Dashboard, page: Page, perturbed: Path
) -> None:
    dashboard.open("/new")
    side = page.locator("section[data-side=target]")
    side.locator(".drop").evaluate("(one) => one.scrollIntoView({ block: 'center' })")
    where = side.locator(".drop").bounding_box()
    assert where is not None
    place = {"x": where["x"] + where["width"] / 2, "y": where["y"] + where["height"] / 2}
    given = {"items": [], "files": [str(perturbed / "target")], "dragOperationsMask": 1}
    browser = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver"):
        browser.send("Input.dispatchDragEvent", {"type": kind, **place, "data": given})
    expect(side).to_have_class(re.compile("is-target"))
    browser.send("Input.dispatchDragEvent", {"type": "drop", **place, "data": given})
    expect(side).not_to_have_class(re.compile("is-target"))
    expect(page.locator("#target")).to_have_value(re.compile(r"/uploads/target(-\d)?$"))
    expect(page.locator("#part-said-target")).to_contain_text("msprobe")
    assert files_of(Path(page.locator("#target").input_value())) == files_of(perturbed / "target") != {}
    dashboard.settle()


def test_a_folder_is_chosen_with_keys_and_an_upload_goes_on_after_a_reload(
    dashboard: Dashboard, page: Page, unpacked: Callable[[str], Path]
) -> None:
    folder = unpacked("msit/llama4_logits_golden")
    sent: list[str] = []

    def break_off(route: Route) -> None:
        sent.append(route.request.url)
        if len(sent) > 5:
            route.abort()
        else:
            route.continue_()

    dashboard.open("/new")
    page.route("**/api/v1/uploads/*/files/**", break_off)
    page.locator("section[data-side=golden] input[webkitdirectory]").set_input_files(folder)
    expect(page.locator("#uploads [data-state]")).not_to_be_empty()
    page.wait_for_function("localStorage.getItem('firstdrift.uploads') !== '[]'")
    while len(sent) < 7:
        page.wait_for_timeout(50)
    page.reload()
    page.unroute("**/api/v1/uploads/*/files/**")
    expect(page.locator("#uploads [data-kind=waiting]")).to_be_visible()
    page.on("request", lambda request: sent.append(request.url) if request.method == "PUT" else None)
    before = len(sent)
    page.locator("section[data-side=golden] input[webkitdirectory]").set_input_files(folder)
    expect(page.locator("#golden")).to_have_value(re.compile(rf"/uploads/{folder.name}(-\d)?$"))
    files = sum(path.is_file() for path in folder.rglob("*"))
    assert len(sent) - before < files, "what had arrived was not sent again"
    assert page.evaluate("localStorage.getItem('firstdrift.uploads')") == "[]"
    forgive(dashboard)


def test_a_mapping_file_is_uploaded_and_part_of_the_command(dashboard: Dashboard, page: Page) -> None:
    dashboard.open("/new")
    page.locator("[data-mapping]").set_input_files(
        {"name": "cells.yaml", "mimeType": "text/yaml", "buffer": b"fc1.Dense: fc1.Linear"}
    )
    mapping = page.locator("#mapping")
    expect(mapping).to_have_value(re.compile(r"/uploads/cells\.yaml/cells\.yaml$"))
    expect(page.locator("#part-command")).to_contain_text("--mapping")
    expect(page.locator("#part-command")).to_contain_text("cells.yaml")
    expect(page.locator("#part-problem .banner")).to_have_count(0)


def test_an_upload_is_cancelled(dashboard: Dashboard, page: Page) -> None:
    dashboard.open("/new")
    held: list[Route] = []
    page.route("**/api/v1/uploads/*/files/**", lambda route: held.append(route))  # noqa: PLW0108
    content = os.urandom(1 << 20)
    page.locator("section[data-side=target] input[data-upload]").first.set_input_files(
        {"name": "big.tar", "mimeType": "application/x-tar", "buffer": content}
    )
    expect(page.locator("#uploads .upload-files li")).to_have_count(1)
    upload = page.evaluate("JSON.parse(localStorage.getItem('firstdrift.uploads'))[0].id")
    with page.expect_response(lambda response: response.request.method == "DELETE"):
        page.locator("#uploads [data-cancel]").press("Enter")
    expect(page.locator("#uploads")).to_be_hidden()
    assert page.request.get(f"/api/v1/uploads/{upload}").status == 404
    expect(page.locator("#target")).to_have_value("")
    forgive(dashboard)


def test_what_is_no_archive_is_said_to_be_none(dashboard: Dashboard, page: Page) -> None:
    dashboard.open("/new")
    page.evaluate(DROP, ["#new", [["run.zip", base64.b64encode(b"no zip at all").decode()]]])
    expect(page.locator("#uploads [data-state]")).to_contain_text(re.compile(like("uploads.no_archive")))
    page.locator("#uploads [data-cancel]").click()
    expect(page.locator("#uploads")).to_be_hidden()
    forgive(dashboard)


def test_what_holds_no_dump_is_said_so_and_can_be_deleted(
    dashboard: Dashboard, page: Page, tmp_path: Path
) -> None:
    (tmp_path / "trip").mkdir()
    for name in "beach.jpg", "readme.txt":
        (tmp_path / "trip" / name).write_bytes(b"neither a tensor nor a dump")
    dashboard.open("/new")
    page.locator("section[data-side=golden] input[webkitdirectory]").set_input_files(tmp_path / "trip")
    expect(page.locator("#uploads > ul > li")).to_have_attribute("data-kind", "failed")
    uploads = Path(page.request.get("/new.json").json()["uploads"])
    landed = next(path for path in uploads.iterdir() if (path / "beach.jpg").exists())
    assert {path.name for path in landed.iterdir()} == {"beach.jpg", "readme.txt"}
    said = page.locator("#uploads [data-state]")
    expect(said).to_contain_text(re.compile(like("dumps.none"), re.IGNORECASE))
    expect(page.locator("#golden")).to_have_value("")  # no path that is none
    page.locator("#uploads [data-delete]").click()
    expect(page.locator("#uploads > ul > li")).to_have_attribute("data-kind", "")
    expect(page.locator("#golden")).to_have_value("")
    expect(page.locator("#part-said-golden .problem")).to_have_count(0)
    assert not landed.exists()
    page.locator("#uploads [data-delete]").click()
    expect(page.locator("#uploads > ul > li")).to_have_attribute("data-kind", "failed")
    assert landed.exists()
    page.locator("#uploads [data-cancel]").click()
    expect(page.locator("#uploads")).to_be_hidden()


def test_a_dump_among_several_in_an_upload_is_chosen_by_a_click(
    dashboard: Dashboard, page: Page, perturbed: Path
) -> None:
    dashboard.open("/new")
    page.locator("section[data-side=target] input[webkitdirectory]").set_input_files(perturbed)
    page.locator("#uploads [data-holds] a", has_text="target").click()
    expect(page.locator("#target")).to_have_value(re.compile(r"/uploads/[^/]*/target$"))
    expect(page.locator("#part-said-target")).to_contain_text("msprobe")
    expect(page.locator("#golden")).to_have_value("")


def test_a_comparison_is_started_with_keys_alone(dashboard: Dashboard, page: Page, dumps: Path) -> None:
    dashboard.open(f"/new?golden_at={dumps}&target_at={dumps}&order=name")

    def step_to(side: str, name: str) -> None:
        for _ in range(20):
            row = page.evaluate("document.activeElement.closest('[data-path]')?.dataset.path ?? ''")
            if row.endswith(f"/{name}"):
                return
            page.keyboard.press("ArrowDown")
        pytest.fail(f"{name} is not among the folders of {side}")

    for side, name in (("golden", "golden"), ("target", "target")):
        page.locator(f"#{side}").focus()
        for _ in range(20):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.matches('.folders a')"):
                break
        if side == "golden":
            step_to(side, "perturbed")
            page.keyboard.press("ArrowRight")
            expect(page.locator("#part-folder-golden .trail nav")).to_contain_text("perturbed")
            page.wait_for_function(
                "document.activeElement.closest('[data-path]')?.dataset.path.includes('perturbed/')"
            )
        step_to(side, name)
        page.keyboard.press("Space")
        expect(page.locator(f"#{side}")).to_have_value(str(dumps / "perturbed" / name))
        expect(page.locator(f"#part-folder-{side} .is-chosen")).to_have_count(1)
    page.keyboard.press("Shift+Tab")
    page.locator("#how summary").press("Enter")
    page.locator("#note").focus()
    page.keyboard.type("by hand")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/c/\d+$"))
    dashboard.wait_for_comparison()


def test_the_command_follows_the_options(dashboard: Dashboard, page: Page) -> None:
    dashboard.open("/new")
    page.locator("#how summary").click()
    page.locator("#rules").select_option("msit")
    page.locator("#tp").fill("1:2")
    page.locator("#token_offset").fill("1")
    page.locator("[name=fuzzy]").check()
    page.locator("[name=structure]").uncheck()
    expect(page.locator("#part-command")).to_contain_text(
        "firstdrift compare GOLDEN TARGET --rules msit --fuzzy --no-structure --token-offset 1 --tp 1:2"
    )
    address = page.url
    dashboard.open(address)
    expect(page.locator("#tp")).to_have_value("1:2")
