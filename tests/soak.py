"""The promises of docs/reliability.md: the tests that hold each, and the figures of the last whole run.

    python tests/soak.py              run all of them, as long as they take, and write docs/reliability.md
    python tests/soak.py paths bombs  run those of two promises; the figures of the others stay
    python tests/soak.py --table      write docs/reliability.md from docs/reliability.json, and run nothing

A test asks `rounds` how often it tries, few times in the suite and many in a whole run, and gives `record`
the figures once it has held what they stand for. What fails has no figure, and the table says so.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

Test = TypeVar("Test", bound=Callable[..., None])

HERE = Path(__file__).resolve().parent
KEPT = HERE.parent / "docs" / "reliability.json"
TABLE = KEPT.with_suffix(".md")
_WHOLE = "FIRSTDRIFT_SOAK"
_FIGURES = "FIRSTDRIFT_FIGURES"


class Promise(NamedTuple):
    """What is promised, how much of it is tried in a whole run, and the test files that try it."""

    what: str
    tried: str
    tests: tuple[str, ...]


PROMISES: dict[str, Promise] = {
    "paths": Promise(
        "Nothing outside the roots is read or listed",
        "30 spellings and more in every parameter that names a file, 10,000 generated ones",
        ("security/test_paths.py", "security/test_path_parameters.py"),
    ),
    "other_sites": Promise(
        "A page of another site cannot use a server",
        "every route with a foreign Host and with what another site would send",
        ("security/test_every_route_is_guarded.py",),
    ),
    "login": Promise(
        "Every route is behind the login",
        "a walk over all routes: with wrong tokens and cookies, as somebody removed, as one who only looks",
        ("security/test_every_route_is_guarded.py", "security/test_members.py"),
    ),
    "shares": Promise(
        "A link to a comparison shows it and nothing else, and can be taken back",
        "all routes through a link; revoked, expired and unknown links",
        ("security/test_share_links.py",),
    ),
    "visitors": Promise(
        "Visitors cannot take a server from whoever has the token",
        "uploads, trials of rules, files and suggestions, more than may be asked for; slow parts of uploads",
        (
            "security/test_quotas.py",
            "server/test_turns.py",
            "server/test_metrics.py",
            "reliability/test_slow_visitors.py",
        ),
    ),
    "names": Promise(
        "Names in dumps never run as code",
        "40 hostile names on all pages and in all files, in Chromium",
        ("browser/test_hostile_names.py",),
    ),
    "pickles": Promise(
        "Opening a dump runs no code of it", "10 malicious files", ("security/test_malicious_files.py",)
    ),
    "damaged": Promise(
        "A damaged file is an answer",
        "100,000 mutations over all readers: a value or a named error, below 1 GB",
        ("fuzz/test_readers.py",),
    ),
    "changing": Promise(
        "A dump that grows, shrinks, changes or vanishes is an answer",
        "while it is indexed, compared and looked at",
        ("reliability/test_changing_dumps.py",),
    ),
    "bombs": Promise("Bombs do not hurt", "10 bombs", ("security/test_ceilings.py",)),
    "killed_worker": Promise(
        "A killed worker loses nothing and repeats nothing",
        "200 kill -9 at random moments",
        ("reliability/test_kill_9.py",),
    ),
    "killed_server": Promise(
        "A killed server loses nothing that it acknowledged",
        "200 kill -9 at random moments",
        ("reliability/test_killed_server.py",),
    ),
    "full_disk": Promise(
        "A full or read-only disk is survived",
        "at every point that writes: a named error, nothing half written, on it goes afterwards",
        ("reliability/test_full_disk.py", "reliability/test_disk_at_every_write.py"),
    ),
    "locked": Promise(
        "Nobody is told that the database is locked",
        "100,000 mixed transactions of servers and workers",
        ("reliability/test_readers_and_writers.py",),
    ),
    "clock": Promise(
        "A clock that is set forward or back stops no job",
        "hours either way while a job runs",
        ("reliability/test_clock.py",),
    ),
    "two_servers": Promise(
        "Two servers on one data directory do not disturb each other",
        "both write and are killed in turn",
        ("reliability/test_two_servers.py",),
    ),
    "same_verdict": Promise(
        "The same dumps give the same answer",
        "JSON byte for byte: three runs, 1 and 8 processes, SQLite and PostgreSQL",
        ("reliability/test_same_verdict.py",),
    ),
    "numbers": Promise(
        "The numbers are right",
        "every metric against a float64 reference, 10,000 pairs of tensors",
        tuple(
            f"library/metrics/test_{of}.py"
            for of in ("elementwise", "logits", "statistics", "integers", "bits")
        ),
    ),
    "nan": Promise(
        "NaN and infinity arrive on pages, in JSON and in spreadsheets",
        "all exports, read back",
        ("server/test_odd_exports.py",),
    ),
    "upgrades": Promise(
        "Upgrades keep what is there",
        "each released schema to the newest, on SQLite and PostgreSQL, with rows",
        ("library/catalogue/test_upgrades.py",),
    ),
    "backup": Promise(
        "A backup can be restored",
        "made while others write, restored, counted",
        ("reliability/test_backup.py",),
    ),
    "leaks": Promise(
        "Nothing leaks",
        "10,000 pages and 50 jobs: descriptors, threads, memory",
        ("reliability/test_leaks.py",),
    ),
    "load": Promise(
        "Pages stay fast under load",
        "200 viewers while a comparison is measured and a million rows are exported",
        ("reliability/test_load.py",),
    ),
    "error_shape": Promise(
        "Errors have one shape and are documented",
        "every operation of the API with made-up values",
        ("server/test_described_api.py", "server/test_odd_requests.py", "server/test_schemathesis.py"),
    ),
    "docs": Promise(
        "The documentation is true",
        "every link, command, option and setting that it names",
        ("contracts/test_docs.py",),
    ),
    "ready": Promise(
        "Ready at once, and small", "start and idle memory of a server", ("reliability/test_serve.py",)
    ),
    "exports": Promise(
        "Exports are safe in a spreadsheet",
        "30 payloads as names: no formula, every name readable",
        ("server/test_odd_exports.py",),
    ),
    "audit": Promise(
        "Who changed what can be read",
        "every route that changes anything leaves one entry",
        ("security/test_audit.py",),
    ),
    "secrets": Promise(
        "A secret is found nowhere but with whoever has it",
        "tokens, links, cookies and a password in use, looked for in processes, logs, databases, answers",
        ("security/test_secrets.py", "cli/test_support.py", "server/test_logs.py"),
    ),
}


def rounds(few: int, many: int) -> int:
    """Return how often to try: a few times in the suite, many times in a whole run."""
    return many if _WHOLE in os.environ else few


def record(promise: str, figure: str) -> None:
    """Keep what a run has shown, such as "2,339 requests, 0 led out", where figures are collected."""
    assert promise in PROMISES, promise
    if file := os.environ.get(_FIGURES):
        with Path(file).open("a", encoding="utf-8") as opened:
            opened.write(json.dumps([promise, figure]) + "\n")


def recorded(promise: str, figure: str) -> Callable[[Test], Test]:
    """Keep, once a test of Hypothesis has held, how many examples it tried: "{} pairs of tensors"."""

    def decorated(test: Test) -> Test:
        handle, tried = test.hypothesis, [0]  # type: ignore[attr-defined] # Hypothesis puts it there
        inner = handle.inner_test

        @wraps(inner)
        def counted(*given: Any, **named: Any) -> None:  # noqa: ANN401 (whatever it takes)
            inner(*given, **named)
            tried[0] += 1

        @wraps(test)
        def whole(*given: Any, **named: Any) -> None:  # noqa: ANN401
            test(*given, **named)
            record(promise, figure.format(f"{tried[0]:,}"))

        handle.inner_test = counted
        return cast("Test", whole)

    return decorated


def main() -> None:
    """Run what is asked for, and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("promises", nargs="*", metavar="PROMISE", help=", ".join(PROMISES))
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--processes", default="2", help="how many tests run side by side")
    chosen = parser.parse_args()
    if unknown := set(chosen.promises) - set(PROMISES):
        parser.error(f"there is no promise {', '.join(sorted(unknown))}")
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    failed = False
    for name in () if chosen.table else chosen.promises or PROMISES:
        figures, passed = run(PROMISES[name], name, chosen.processes)
        kept[name] = {"figures": figures, "held": passed, **circumstances()}
        failed = failed or not passed
        KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        TABLE.write_text(table(kept), encoding="utf-8")
    TABLE.write_text(table(kept), encoding="utf-8")
    sys.exit(failed)


def run(promise: Promise, name: str, processes: str) -> tuple[list[str], bool]:
    """Run the tests of a promise; give the figures that they recorded, and whether all of them passed."""
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as figures:
        files = [str(HERE / test) for test in promise.tests]
        # A whole run takes as long as it takes.
        command = [sys.executable, "-m", "pytest", "-q", "--timeout=0", "-n", processes, *files]
        environment = os.environ | {_WHOLE: "1", _FIGURES: figures.name}
        ended = subprocess.run(command, cwd=HERE.parent, env=environment, check=False)
        recorded = [json.loads(line) for line in figures]
    said = [figure for kind, figure in recorded if kind == name]
    return said, ended.returncode == 0 and bool(said)


def circumstances() -> dict[str, str]:
    """Say when and of what a figure was taken."""
    return {"version": version("firstdrift"), "date": f"{datetime.now(UTC):%Y-%m-%d}"}


def table(kept: Mapping[str, Mapping[str, object]]) -> str:
    """Write the page of promises, as Markdown."""
    rows = [row(name, promise, kept.get(name, {})) for name, promise in PROMISES.items()]
    figures = [line for name, promise in PROMISES.items() for line in told_of(promise, kept.get(name, {}))]
    return "\n".join([*_HEAD, *rows, "", "## What the runs showed", *figures]) + "\n"


def row(name: str, promise: Promise, told: Mapping[str, object]) -> str:
    """Write the line of one promise."""
    outcome = "not tried" if not told else "held" if told["held"] else "**not held**"
    return f"| `{name}` | {promise.what} | {promise.tried} | {outcome} | {told.get('date', '')} |"


def told_of(promise: Promise, told: Mapping[str, object]) -> list[str]:
    """List the figures of a promise, and the tests that they come from."""
    figures = told.get("figures")
    tests = ", ".join(f"[{Path(test).stem}](../tests/{test})" for test in promise.tests)
    known = [f"- {figure}" for figure in figures] if isinstance(figures, list) else []
    return ["", f"**{promise.what}** ({tests})", "", *(known or ["- no figures"])]


_HEAD = (
    "# What firstdrift promises, and what was shown",
    "",
    "`make soak` tries each promise as often as the table says, writes the figures into",
    "[reliability.json](reliability.json), and makes this page of them; `ARGS='paths bombs'` tries two.",
    "`make test` runs the same tests with a few tries of each. Nothing here is written by hand.",
    "",
    "| name | promise | what is tried | | on |",
    "|---|---|---|---|---|",
)

if __name__ == "__main__":
    main()
