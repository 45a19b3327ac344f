"""What a machine is: cores, memory, limits, disk; and which packages are there."""

import os
import platform
import resource
import sqlite3
import sys
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

from firstdrift.catalogue.sizes import free_bytes
from firstdrift.processes.limits import memory_of_machine, usable_cores

_GROUP: Final = Path("/sys/fs/cgroup")
_LIMITS: Final = ("memory.max", "memory.current", "memory.swap.max", "cpu.max", "pids.max", "pids.current")
_RESOURCES: Final = (
    "RLIMIT_NOFILE",
    "RLIMIT_NPROC",
    "RLIMIT_AS",
    "RLIMIT_DATA",
    "RLIMIT_FSIZE",
    "RLIMIT_CORE",
)


def versions() -> dict[str, Any]:
    """Say which packages are there, in which version."""
    found = {str(one.metadata["Name"]).lower(): one.version for one in distributions()}
    return {
        "python": sys.version.split()[0],
        "implementation": platform.python_implementation(),
        "sqlite": sqlite3.sqlite_version,
        "packages": dict(sorted(found.items())),
    }


def machine(folder: Path) -> dict[str, Any]:
    """Describe the machine; `folder` is on the disk that matters."""
    about = os.statvfs(folder) if folder.is_dir() else None
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "usable_memory": memory_of_machine(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "container": {name: said for name in _LIMITS if (said := _limit(name))},
        "limits": {name: _resource(name) for name in _RESOURCES if hasattr(resource, name)},
        "disk": {
            "free": free_bytes(folder),
            "total": about.f_blocks * about.f_frsize if about else 0,
            "free_files": about.f_favail if about else 0,
        },
    }


def _limit(name: str) -> str:
    with suppress(OSError):
        return (_GROUP / name).read_text("ascii").strip()
    return ""


def _resource(name: str) -> list[int | None]:
    found = resource.getrlimit(getattr(resource, name))
    return [None if limit == resource.RLIM_INFINITY else limit for limit in found]
