"""The command `firstdrift`: the one place that knows server, worker and library.

Everything but click is imported by the command that needs it: `firstdrift compare` on a small dump
must not wait for torch, pandas or a web framework.
"""

import sys
from typing import Final, NoReturn

from firstdrift.cli.compare import compare
from firstdrift.cli.database import backup, check, restore
from firstdrift.cli.group import main
from firstdrift.cli.inspect import inspect
from firstdrift.cli.people import audit, member
from firstdrift.cli.rollout import rollout
from firstdrift.cli.rules import rules
from firstdrift.cli.serve import serve, server, worker
from firstdrift.cli.support import support
from firstdrift.processes.apart import run_apart, status_of

__all__ = ["main", "run"]

_READ_DUMPS: Final = ("compare", "inspect", "rollout")
"""Commands that read dumps, and so run in a process that may die of them."""

for _command in (
    compare,
    inspect,
    rollout,
    rules,
    serve,
    server,
    worker,
    check,
    backup,
    restore,
    member,
    audit,
    support,
):
    main.add_command(_command)


def run() -> NoReturn:
    """Run the command as it is installed, and leave with its exit status."""
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    sys.exit(run_apart(lambda: status_of(main)) if command in _READ_DUMPS else status_of(main))
