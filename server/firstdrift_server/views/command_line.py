"""The command that does in a terminal what a page does."""

import shlex

from firstdrift.comparison.report import Options


def compare_command(golden: str, target: str, options: Options) -> str:
    """Write the `firstdrift compare` line of a comparison; options left at their defaults are left out.

    What people matched by hand is in the file that their match set is exported to.
    """
    matching = options.matching
    words = ["firstdrift", "compare", golden or "GOLDEN", target or "TARGET"]
    words += ["--rules", options.rules] if options.rules != Options().rules else []
    words += ["--level", options.level] if options.level else []
    words += ["--fuzzy"] if matching.fuzzy else []
    words += [] if matching.structure else ["--no-structure"]
    for name in ("step", "rank", "token"):
        value = getattr(matching, name)
        words += [f"--{name}", str(value)] if value is not None else []
    words += ["--token-offset", str(matching.token_offset)] if matching.token_offset else []
    words += ["--mapping", "MATCH_SET.json"] if matching.edits or matching.mappings else []
    return shlex.join(words)
