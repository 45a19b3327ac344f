"""No module imports one that imports it: neither at its top, nor in a function, nor for its types alone."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    ROOT / "firstdrift",
    ROOT / "server" / "firstdrift_server",
    ROOT / "worker" / "firstdrift_worker",
    ROOT / "frontend" / "firstdrift_frontend",
)


def modules(package: Path) -> Iterator[tuple[str, Path]]:
    for file in package.rglob("*.py"):
        parts = file.relative_to(package.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), file


def names_imported(file: Path) -> Iterator[str]:
    """Give what is imported anywhere in a file: `a.b` for `import a.b` and for `from a import b`."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file} imports relative to itself"
            yield from (f"{node.module}.{one.name}" for one in node.names)


def imports(*packages: Path) -> dict[str, set[str]]:
    """Return which modules each module imports; a name out of a module counts as the module."""
    files = dict(found for package in packages for found in modules(package))
    return {
        module: {
            known
            for name in names_imported(file)
            if (known := name if name in files else name.rpartition(".")[0]) in files and known != module
        }
        for module, file in files.items()
    }


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules of a circle, each imported by the next; [] if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_one_that_imports_it() -> None:
    graph = imports(*PACKAGES)
    assert len(graph) > 300
    found = circle(graph)
    assert not found, " imports ".join(reversed(found))


@pytest.mark.parametrize(
    "back",
    [
        "import made.one",
        "from made import one",
        "from made.one import name",
        "def late():\n    from made.one import name",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from made.one import name",
    ],
)
def test_every_way_back_is_a_circle(tmp_path: Path, back: str) -> None:
    package = tmp_path / "made"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("from made.two import other\nname = other")
    (package / "two.py").write_text("other = 1")
    assert circle(imports(package)) == []
    (package / "two.py").write_text(f"other = 1\n{back}")
    assert sorted(set(circle(imports(package)))) == ["made.one", "made.two"]
