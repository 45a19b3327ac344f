"""The numbers by which nodes are matched and judged stand in tables, with unit, meaning and origin."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

MATCHING = Path(__file__).parents[2] / "firstdrift" / "matching"
FILES = sorted(MATCHING.rglob("*.py"))
VERDICT = Path(__file__).parents[2] / "firstdrift" / "verdict"
SHOWN = {"_SHOWN", "_SUSPECTS", "_TIMES_KEPT", "MOST_OVERFLOW"}
"""How much is shown, or remembered, decides nothing."""
VERSIONS = {"FORMAT", "_SIDES"}
"""Numbers that are no thresholds: of a file format, and of the two dumps."""


def numbers(file: Path) -> Iterator[tuple[str, ast.stmt | None]]:
    """Yield the names of a module that are one number, each with the statement that follows it."""
    body = ast.parse(file.read_text()).body
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign | ast.Assign) and statement.value is not None:
            target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
            with_sign = statement.value
            value = with_sign.operand if isinstance(with_sign, ast.UnaryOp) else with_sign
            if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
                yield ast.unparse(target), following


@pytest.mark.parametrize(
    "file", [one for one in FILES if one.name != "thresholds.py"], ids=lambda one: one.stem
)
def test_no_number_stands_outside_the_tables(file: Path) -> None:
    assert {name for name, _ in numbers(file)} <= VERSIONS


@pytest.mark.parametrize(
    "file", [one for one in FILES if one.name == "thresholds.py"], ids=lambda one: one.parent.name
)
def test_each_number_has_unit_meaning_and_origin(file: Path) -> None:
    found = list(numbers(file))
    assert found
    for name, said in found:
        assert isinstance(said, ast.Expr), name
        assert isinstance(said.value, ast.Constant), name
        parts = " ".join(str(said.value.value).split()).split(" | ")
        assert len(parts) == 3, name
        assert all(parts), name


@pytest.mark.parametrize("file", sorted(VERDICT.glob("*.py")), ids=lambda one: one.stem)
def test_no_number_of_the_verdict_stands_outside_its_tables(file: Path) -> None:
    assert {name for name, _ in numbers(file)} <= SHOWN
