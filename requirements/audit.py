"""Hold what is pinned against the advisories that are known: `make audit`.

exit status 0   no pinned package has a known fault; or nobody could be asked, which is said aloud
            1   a pinned package has a known fault: which, what it is called, and where it is mended

That an advisory is published breaks no change that has nothing to do with it: this runs by itself, each week
and when the lists change, and not in `.ci/run`.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
LISTS = ("run.txt", "scale.txt", "dev.txt", "torch.txt", "cuda.txt", "uv.txt", "tools/audit.txt")
"""All but torch-cpu.txt: advisories know no builds, and torch.txt has the same version."""

AUDIT = (sys.executable, "-m", "pip_audit")
OPTIONS = ("--require-hashes", "--disable-pip", "--format", "json", "--progress-spinner", "off")
PATIENCE_SECONDS = 600.0


class NotAskedError(Exception):
    """Nobody could be asked about a list."""


class Audited(NamedTuple):
    """What came of a list: the faults that are known, how many packages were looked at, which were not."""

    faults: list[str]
    looked_at: int
    unknown: list[str]


def audited(file: Path, audit: Sequence[str] = AUDIT) -> Audited:
    """Ask about all packages of a list.

    Raises:
        NotAskedError: nobody could be asked, or knows anything of any of them.
    """
    packages = _told(file, audit)
    unknown = [package["name"] for package in packages if "skip_reason" in package]
    if len(unknown) == len(packages):
        raise NotAskedError("it knows none of these packages")
    faults = [
        f"{file.name}: {package['name']} {package['version']}: {_named(fault)}"
        for package in packages
        for fault in package.get("vulns", ())
    ]
    return Audited(faults, len(packages) - len(unknown), unknown)


def _named(fault: dict[str, Any]) -> str:
    names = ", ".join([fault["id"], *fault.get("aliases", ())])
    return f"{names}; mended in {', '.join(fault.get('fix_versions', ())) or 'no version yet'}"


def _told(file: Path, audit: Sequence[str]) -> list[dict[str, Any]]:
    """Give what is known of each package of a list.

    pip-audit exits with 1 both where it found something and where it could not ask: only the first of them
    has an answer that is JSON.
    """
    try:
        done = subprocess.run(
            [*audit, *OPTIONS, "--requirement", str(file)],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )
        told: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except subprocess.TimeoutExpired as error:
        raise NotAskedError(f"no answer in {PATIENCE_SECONDS:.0f} s") from error
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise NotAskedError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "") from error
    return told


def main(audit: Sequence[str] = AUDIT, folder: Path = HERE) -> int:
    """Say what is known; return the exit status."""
    faults: list[str] = []
    looked_at = 0
    for name in LISTS:
        try:
            found = audited(folder / name, audit)
        except NotAskedError as error:
            print(f"!!! NOT AUDITED: {name}: the service could not be asked ({error})", flush=True)
            continue
        faults += found.faults
        looked_at += found.looked_at
        if found.unknown:
            print(f"!!! NOT AUDITED: {name}: {', '.join(found.unknown)}", flush=True)
    print(*faults, sep="\n", end="\n" if faults else "")
    print(f"{looked_at} packages audited, {len(faults)} known faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
