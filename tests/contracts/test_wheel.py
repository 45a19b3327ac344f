import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from messages import says

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "firstdrift": ROOT / "firstdrift",
    "firstdrift_server": ROOT / "server" / "firstdrift_server",
    "firstdrift_worker": ROOT / "worker" / "firstdrift_worker",
    "firstdrift_frontend": ROOT / "frontend" / "firstdrift_frontend",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel without a network and unpack it, as an installer would."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", folder, ROOT], check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("firstdrift-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site-packages")
    return folder / "site-packages"


def files_below(folder: Path) -> set[Path]:
    return {
        file.relative_to(folder)
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_every_file_of_a_package_is_in_the_wheel(installed: Path, package: str) -> None:
    assert files_below(installed / package) == files_below(PACKAGES[package])


@pytest.mark.parametrize("package", PACKAGES)
def test_a_type_checker_sees_the_types_of_each_package(installed: Path, package: str) -> None:
    assert (installed / package / "py.typed").is_file()


def test_pages_and_their_styles_travel_with_the_wheel(installed: Path) -> None:
    frontend = installed / "firstdrift_frontend"
    assert list((frontend / "templates").rglob("*.html"))
    assert list((frontend / "static").rglob("*.css"))
    assert list((frontend / "static").rglob("*.js"))


def test_nothing_else_is_put_into_the_site_packages_of_others(installed: Path) -> None:
    information = {folder.name for folder in installed.glob("firstdrift-*.dist-info")}
    assert {entry.name for entry in installed.iterdir()} == {*PACKAGES, *information}


def test_the_licence_and_the_command_come_along(installed: Path) -> None:
    (information,) = installed.glob("firstdrift-*.dist-info")
    assert "Apache License" in (information / "licenses" / "LICENSE").read_text(encoding="utf-8")
    entry_points = (information / "entry_points.txt").read_text(encoding="utf-8")
    assert "firstdrift = firstdrift.cli:run" in entry_points


def test_what_was_installed_starts_away_from_the_sources(installed: Path, tmp_path: Path) -> None:
    script = "import firstdrift.cli as cli; print(cli.__file__); cli.main(['--help'])"
    answer = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith(str(installed))
    assert "compare" in answer.stdout


def test_what_was_installed_runs_without_its_script(installed: Path, tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "firstdrift", "inspect", tmp_path / "nothing"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 2
    assert answer.stderr.startswith("firstdrift: ")
    assert says(answer.stderr, "dumps.nothing_here")
