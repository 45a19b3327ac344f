"""Measure the house: `make lint` fails where it grows beyond what is agreed.

python tests/contracts/measures.py          the figures, and what is beyond its limit
"""

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from radon.complexity import average_complexity, cc_visit
from radon.visitors import Class, Function

ROOT = Path(__file__).parents[2]
PACKAGES = ("firstdrift", "server", "worker", "frontend")
MOST_LINES = 500
LONGEST_FUNCTION = 60
HIGHEST_AVERAGE = 3.5
"""Of the cyclomatic complexity, as `radon cc --average` has it; whoever brings it down lowers the limit."""
COMPLEX = 10
MOST_COMPLEX = 0.016
"""How large a part of the functions may have a complexity above `COMPLEX`."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A function: where it stands, how long and how complex it is."""

    place: str
    lines: int
    complexity: int


def sources() -> list[Path]:
    """Return the Python files of the product; migrations stay as they were run."""
    found = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    return [file for file in found if "migrations" not in file.parts]


def functions(file: Path) -> Iterator[Measured]:
    """Yield the functions, methods and closures of a file."""
    for block in cc_visit(file.read_text("utf-8")):
        if isinstance(block, Class):  # its methods are listed by themselves
            continue
        yield from _with_closures(file, block)


def average(files: Iterable[Path]) -> float:
    """Return the average complexity of functions, methods and classes: a class has that of its methods."""
    return average_complexity([block for file in files for block in cc_visit(file.read_text("utf-8"))])


def _with_closures(file: Path, block: Function) -> Iterator[Measured]:
    place = f"{file.relative_to(ROOT)}:{block.lineno} {block.name}"
    yield Measured(place, block.endline - block.lineno + 1, block.complexity)
    for closure in block.closures:
        yield from _with_closures(file, closure)


def without_docstring(file: Path) -> Iterator[str]:
    """Yield the public names of a file that say nothing of themselves; overloads and protocols' own too."""
    tree = ast.parse(file.read_text("utf-8"))
    if ast.get_docstring(tree) is None and file.read_text("utf-8").strip():
        yield f"{file.relative_to(ROOT)}"
    for node in tree.body:
        yield from _silent(file, node)


def _silent(file: Path, node: ast.stmt) -> Iterator[str]:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    if node.name.startswith("_"):
        return
    if ast.get_docstring(node) is None:
        yield f"{file.relative_to(ROOT)}:{node.lineno} {node.name}"
    for inner in node.body if isinstance(node, ast.ClassDef) else ():
        yield from _silent(file, inner)


def beyond() -> Iterator[str]:
    """Say what is beyond its limit."""
    files = sources()
    for file in files:
        if (lines := len(file.read_text("utf-8").splitlines())) > MOST_LINES:
            yield f"{file.relative_to(ROOT)} has {lines} lines; {MOST_LINES} are the most"
        yield from (f"{name} has no docstring" for name in without_docstring(file))
    found = [measured for file in files for measured in functions(file)]
    for one in found:
        if one.lines > LONGEST_FUNCTION:
            yield f"{one.place} has {one.lines} lines; {LONGEST_FUNCTION} are the most"
    if (mean := average(files)) > HIGHEST_AVERAGE:
        yield f"the average complexity is {mean:.2f}; {HIGHEST_AVERAGE} is the most"
    complex_ = [one for one in found if one.complexity > COMPLEX]
    if len(complex_) / len(found) > MOST_COMPLEX:
        yield f"{len(complex_) / len(found):.1%} of the functions are complex; {MOST_COMPLEX:.1%} is the most"
        worst = sorted(complex_, key=lambda one: -one.complexity)[:20]
        yield from (f"    {one.place}: {one.complexity}" for one in worst)


def main() -> int:
    """Print the figures, and what is beyond its limit; return the exit status."""
    files = sources()
    found = [measured for file in files for measured in functions(file)]
    share = sum(one.complexity > COMPLEX for one in found) / len(found)
    lines = sum(len(file.read_text("utf-8").splitlines()) for file in files)
    print(
        f"{len(files)} files, {lines:,} lines, {len(found):,} functions:"
        f" average complexity {average(files):.2f}, {share:.1%} over {COMPLEX}"
    )
    problems = list(beyond())
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
