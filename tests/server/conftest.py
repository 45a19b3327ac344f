"""An application over real comparisons, made by a real worker."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from working import ask_to_compare, wait_for_comparison, worker

from firstdrift.catalogue.engine import database_url, open_engine
from firstdrift.catalogue.migrate import upgrade
from firstdrift.catalogue.tables import JobState
from firstdrift_server.app import create_app
from firstdrift_server.settings import settings_from


@pytest.fixture(scope="session")
def dumps(
    unpacked: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, tuple[Path, Path]]:
    """Golden and target dump of a perturbed weight, of renamed modules, of a fault, and of a damaged file."""
    statistics, renamed = unpacked("msprobe/llama_stat_mix_perturb"), unpacked("msprobe/d4_renamed")
    golden = unpacked("msit/llama4_logits_golden")
    damaged = shutil.copytree(golden, tmp_path_factory.mktemp("damaged") / "target")
    file = sorted(damaged.rglob("*.pth"))[3]
    file.write_bytes(file.read_bytes()[:100])
    return {
        "perturbed": (statistics / "golden", statistics / "target"),
        "renamed": (renamed / "golden", renamed / "target"),
        "tokens": (unpacked("msit/llama4_golden_fp32"), unpacked("msit/llama4_perturb_L2_T3")),
        "damaged": (golden, damaged),
    }


@pytest.fixture(scope="session")
def catalogue(tmp_path_factory: pytest.TempPathFactory, dumps: Mapping[str, tuple[Path, Path]]) -> Path:
    """The database of a server with a finished comparison of each pair of dumps: 1 to 4."""
    folder = tmp_path_factory.mktemp("catalogue")
    engine = open_engine(database_url(folder))
    upgrade(engine)
    made = [ask_to_compare(engine, *pair) for pair in dumps.values()]
    with worker(database_url(folder)):
        assert all(wait_for_comparison(engine, one).state is JobState.DONE for one in made)
    engine.dispose()
    return folder / "firstdrift.db"


@pytest.fixture(scope="module")
def client(
    tmp_path_factory: pytest.TempPathFactory, dumps: Mapping[str, tuple[Path, Path]], catalogue: Path
) -> Iterator[TestClient]:
    """A browser's or a script's side of a server with those comparisons, and its worker."""
    roots = [dump for pair in dumps.values() for dump in pair]
    settings = settings_from(roots=roots, data_dir=tmp_path_factory.mktemp("data"))
    shutil.copy(catalogue, settings.data_dir)
    app = create_app(settings)
    with (
        worker(settings.database),
        TestClient(app, base_url="http://localhost", follow_redirects=False) as client,
    ):
        yield client
