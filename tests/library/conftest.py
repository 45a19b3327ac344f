"""Reports on the real dumps, each made once per session."""

from collections.abc import Callable
from pathlib import Path

import pytest

from firstdrift import Options, Report, compare


@pytest.fixture(scope="session")
def compared(unpacked: Callable[[str], Path]) -> Callable[..., Report]:
    """Return a function that compares two dumps of the archives under a rule set, each pair only once.

    A dump is named by its archive, and where in it: "msit/llama4_bf16", "msprobe/dp2_stat_mix/golden".
    """
    reports: dict[tuple[str, str, str], Report] = {}

    def folder(name: str) -> Path:
        family, archive, *inside = name.split("/")
        return unpacked(f"{family}/{archive}").joinpath(*inside)

    def report(golden: str, target: str, rules: str = "firstdrift") -> Report:
        asked = (golden, target, rules)
        if asked not in reports:
            reports[asked] = compare(folder(golden), folder(target), Options(rules=rules))
        return reports[asked]

    return report
