"""Every package that is installed is pinned by version and by hash, and nothing is fetched beside that."""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from itertools import product
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "requirements"
FILES = {file.name: file.read_text(encoding="utf-8") for file in sorted(FOLDER.glob("*.txt"))}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
SYSTEMS = [("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64")]
PYTHONS = ["3.11", "3.12", "3.13"]
ENVIRONMENTS = [
    {
        "sys_platform": system,
        "platform_system": system.capitalize(),
        "platform_machine": machine,
        "python_version": python,
        "python_full_version": f"{python}.7",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "os_name": "posix",
    }
    for (system, machine), python in product(SYSTEMS, PYTHONS)
]


def entries(text: str) -> Iterator[tuple[Requirement, str]]:
    """Give each package of a requirements file, and its lines."""
    lines = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    for entry in re.split(r"\n(?=\S)", lines.strip()):
        yield Requirement(entry.partition("\\")[0].partition("--hash")[0]), entry


def pinned(*names: str) -> dict[str, Requirement]:
    """Return the packages of some of the files by name."""
    return {canonicalize_name(one.name): one for name in names for one, _ in entries(FILES[name])}


def version_of(requirement: Requirement) -> str:
    (specifier,) = requirement.specifier
    assert specifier.operator == "==", requirement
    return specifier.version


CONSTRAINTS = {
    canonicalize_name(one.name): version_of(one)
    for one, _ in entries((ROOT / "constraints.txt").read_text(encoding="utf-8"))
}
RUN = pinned("run.txt", "torch.txt")
ALL = pinned("run.txt", "scale.txt", "dev.txt", "torch.txt")
SAID = [Requirement(one) for one in PROJECT["project"]["dependencies"]]
ASKED = [
    Requirement(one)
    for extra in PROJECT["project"]["optional-dependencies"].values()
    for one in extra
    if not one.startswith("firstdrift[")
]
SCALE = [
    Requirement(one)
    for extra in ("cluster", "postgres")
    for one in PROJECT["project"]["optional-dependencies"][extra]
]
BUILT_WITH = [Requirement(one) for one in PROJECT["build-system"]["requires"]]


@pytest.mark.parametrize("name", FILES)
def test_every_package_has_one_version_and_hashes(name: str) -> None:
    found = list(entries(FILES[name]))
    assert found
    for requirement, lines in found:
        assert version_of(requirement)
        assert HASH.search(lines), requirement.name
        assert len(set(HASH.findall(lines))) == lines.count("--hash=")


def test_no_package_is_in_two_lists() -> None:
    names = [canonicalize_name(one.name) for name in FILES for one, _ in entries(FILES[name])]
    assert sorted(names) == sorted([*set(names), "torch"])  # PyTorch, and its CPU build


def test_the_versions_are_those_that_were_tested() -> None:
    for name, requirement in ALL.items():
        here = requirement.marker is None or any(map(requirement.marker.evaluate, ENVIRONMENTS))
        if name in CONSTRAINTS or here:
            assert version_of(requirement) == CONSTRAINTS.get(name), name
    (cpu,) = pinned("torch-cpu.txt").values()
    assert version_of(cpu) == f"{CONSTRAINTS['torch']}+cpu"


def test_they_are_what_the_project_asks_for() -> None:
    scale = RUN | pinned("scale.txt")
    for lists, asked in ((RUN, [*SAID, *BUILT_WITH]), (scale, SCALE), (ALL, ASKED)):
        for one in asked:
            assert one.specifier.contains(version_of(lists[canonicalize_name(one.name)])), one


def needs(requirement: Requirement, environment: dict[str, str]) -> Iterator[Requirement]:
    """Give what a package that is installed here needs, in an environment."""
    try:
        said = requires(requirement.name) or []
    except PackageNotFoundError:  # it is for other systems
        return
    for one in map(Requirement, said):
        extras = {"", *requirement.extras}
        if one.marker is None or any(
            one.marker.evaluate({**environment, "extra": extra}) for extra in extras
        ):
            yield one


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda one: "-".join(list(one.values())[1:4]))
@pytest.mark.parametrize(
    ("lists", "asked"), [(RUN, SAID + BUILT_WITH), (ALL, SAID + ASKED)], ids=["run", "dev"]
)
def test_the_lists_are_whole_on_every_system(
    lists: dict[str, Requirement], asked: list[Requirement], environment: dict[str, str]
) -> None:
    wanted, seen = list(asked), set[str]()
    while wanted:
        one = wanted.pop()
        if str(one) in seen:
            continue
        seen.add(str(one))
        name = canonicalize_name(one.name)
        if name.startswith(("nvidia-", "cuda-", "triton")):
            continue  # of this machine's build of PyTorch: they have a list of their own
        pin = lists[name]
        assert pin.marker is None or pin.marker.evaluate(environment), one
        assert one.specifier.contains(version_of(pin), prereleases=True), one
        wanted += needs(one, environment)


def test_only_what_pytorch_needs_for_cuda_stands_apart() -> None:
    for name, requirement in pinned("cuda.txt").items():
        assert name.startswith(("nvidia-", "cuda-", "triton"))
        assert requirement.marker is not None
        assert not requirement.marker.evaluate(ENVIRONMENTS[-1])


def test_nothing_else_is_installed_with_or_without_a_container() -> None:
    for name in ("Makefile", "Dockerfile"):
        text = (ROOT / name).read_text(encoding="utf-8")
        installs = re.findall(r"(?:\$\(BIN\)/python \$\(PIP\)|/bin/pip install)(.*)", text)
        # Older versions, beside the environment, for one run of tests.
        installs = [one for one in installs if "--target .venv-oldest" not in one]
        assert len(installs) == 1, name
        assert all("--no-deps --no-build-isolation" in one for one in installs)
        assert "requirements/install.py" in text
    assert "!requirements/" in (ROOT / ".dockerignore").read_text(encoding="utf-8")


# What `requirements/install.py` does, with real pip and real, if tiny, packages.


def make_wheel(folder: Path, name: str, version: str, needs: str = "", text: str = "") -> str:
    """Make a wheel; return its hash."""
    file = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    about = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    content = {
        f"{name.replace('-', '_')}.py": text,
        f"{about}/METADATA": metadata + (f"Requires-Dist: {needs}\n" if needs else ""),
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(said.encode()).digest()).decode().rstrip('=')},\n"
        for path, said in content.items()
    )
    with zipfile.ZipFile(file, "w") as archive:
        for path, said in content.items():
            archive.writestr(path, said)
        archive.writestr(f"{about}/RECORD", f"{record}{about}/RECORD,,\n")
    return f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"


class Place:
    """A virtual environment, an index that is a folder, and the lists of what is to be installed."""

    def __init__(self, folder: Path, environment: Path) -> None:
        self.index, self.lists, self.environment = folder / "index", folder / "requirements", environment
        self.index.mkdir()
        self.lists.mkdir()
        shutil.copy(FOLDER / "install.py", self.lists)
        self.write("run.txt", "firstdrift-needs==1", make_wheel(self.index, "firstdrift-needs", "1"))
        self.write("scale.txt", "firstdrift-scale==1", make_wheel(self.index, "firstdrift-scale", "1"))
        self.write("dev.txt", "firstdrift-tests==1", make_wheel(self.index, "firstdrift-tests", "1"))
        cuda = make_wheel(self.index, "nvidia-all", "1")
        self.write("cuda.txt", "nvidia-all==1", cuda)
        self.write("torch.txt", "torch==2", make_wheel(self.index, "torch", "2", "nvidia-all>=1"))
        self.write("torch-cpu.txt", "torch==2+cpu", make_wheel(self.index, "torch", "2+cpu"))

    def write(self, name: str, requirement: str, digest: str) -> None:
        (self.lists / name).write_text(f"# {name}\n{requirement} \\\n    --hash={digest}\n", encoding="utf-8")

    def python(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        # Nothing of this machine's own settings of pip.
        known = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
        own = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.index)}
        python = self.environment / "bin" / "python"
        return subprocess.run(
            [python, *arguments], env=known | own, capture_output=True, text=True, check=False, timeout=100
        )

    def install(self, *options: str) -> subprocess.CompletedProcess[str]:
        return self.python(self.lists / "install.py", *options)

    def installed(self) -> set[str]:
        found = (one.stem.partition("-") for one in site_of(self.environment).glob("*.dist-info"))
        return {f"{name.replace('_', '-')}=={version}" for name, _, version in found if name not in BESIDE}


BESIDE = {"pip", "setuptools"}
"""What a new environment has."""


def site_of(environment: Path) -> Path:
    (site,) = environment.glob("lib/python*/site-packages")
    return site


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder


@pytest.fixture
def place(tmp_path: Path, environment: Path) -> Iterator[Place]:
    before = set(site_of(environment).iterdir())
    yield Place(tmp_path, environment)
    for new in set(site_of(environment).iterdir()) - before:
        if new.is_dir():
            shutil.rmtree(new)
        else:
            new.unlink()


def test_what_is_listed_is_installed_with_the_cpu_build_of_pytorch(place: Place) -> None:
    answer = place.install()
    assert answer.returncode == 0, answer.stderr
    assert place.installed() == {"firstdrift-needs==1", "torch==2+cpu"}
    assert place.install("--scale").returncode == 0
    with_scale = {"firstdrift-needs==1", "firstdrift-scale==1", "torch==2+cpu"}
    assert place.installed() == with_scale
    assert place.install("--dev").returncode == 0
    assert place.installed() == with_scale | {"firstdrift-tests==1"}


def test_where_there_is_no_cpu_build_the_other_comes_with_what_it_needs(place: Place) -> None:
    (place.index / "torch-2+cpu-py3-none-any.whl").unlink()
    answer = place.install()
    assert answer.returncode == 0, answer.stderr
    assert place.installed() == {"firstdrift-needs==1", "nvidia-all==1", "torch==2"}


@pytest.mark.parametrize("name", ["firstdrift-needs", "torch"])
def test_another_file_under_the_same_version_is_refused(place: Place, name: str) -> None:
    version = "2+cpu" if name == "torch" else "1"
    make_wheel(place.index, name, version, text="raise SystemExit('not what was pinned')")
    answer = place.install()
    assert answer.returncode == 1
    assert "DO NOT MATCH THE HASHES" in answer.stderr
    assert ("--any-torch" in answer.stderr) is (name == "torch")
    assert not any(one.startswith(name) for one in place.installed())


def test_nothing_is_built_from_source(place: Place, tmp_path: Path) -> None:
    for wheel in place.index.glob("firstdrift_needs*"):
        wheel.unlink()
    source, files = place.index / "firstdrift_needs-1.tar.gz", tmp_path / "firstdrift_needs-1"
    files.mkdir()
    (files / "backend.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')", encoding="utf-8")
    (files / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n', encoding="utf-8"
    )
    (files / "PKG-INFO").write_text(
        "Metadata-Version: 2.1\nName: firstdrift-needs\nVersion: 1\n", encoding="utf-8"
    )
    with tarfile.open(source, "w:gz") as archive:
        archive.add(files, files.name)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    place.write("run.txt", "firstdrift-needs==1", f"sha256:{digest}")
    assert place.install().returncode == 1
    assert not (tmp_path / "ran").exists()


def test_another_build_of_pytorch_is_taken_if_it_is_asked_for(place: Place) -> None:
    make_wheel(place.index, "torch", "2+cpu", text="built = 'here'")
    answer = place.install("--any-torch")
    assert answer.returncode == 0, answer.stderr
    assert "torch==2+cpu" in place.installed()


def test_an_option_that_does_not_exist_installs_nothing(place: Place) -> None:
    answer = place.install("--all")
    assert answer.returncode == 1
    assert "--all" in answer.stderr
    assert place.installed() == set()
