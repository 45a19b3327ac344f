"""The command that does in a terminal what a page does."""

import shlex
from collections.abc import Sequence

from firstdrift.comparison.report import Options
from firstdrift.matching.ranks.parallel_sizes import write_layouts
from firstdrift.paths import spelt


def compare_command(
    golden: str, target: str, options: Options, mappings: Sequence[str] = (), baseline: str = ""
) -> str:
    """Write the `firstdrift compare` line of a comparison; options left at their defaults are left out.

    Args:
        golden: path of the golden dump; empty if it is not chosen yet.
        target: likewise of the target dump.
        options: what was chosen.
        mappings: the mapping files, where it is known which they were. What people matched by hand is in the
            file that their match set is exported to.
        baseline: path of the healthy run, where it is known and may be seen.
    """
    matching = options.matching
    words = ["firstdrift", "compare", golden or "GOLDEN", target or "TARGET"]
    words += ["--rules", options.rules] if options.rules != Options().rules else []
    for moved in threshold_words(options):
        words += ["--threshold", moved]
    words += ["--baseline", baseline or "HEALTHY"] if options.baseline is not None else []
    words += ["--level", options.level] if options.level else []
    words += ["--fuzzy"] if matching.fuzzy else []
    words += [] if matching.structure else ["--no-structure"]
    for name in ("step", "rank", "token"):
        value = getattr(matching, name)
        words += [f"--{name}", str(value)] if value is not None else []
    words += ["--token-offset", str(matching.token_offset)] if matching.token_offset else []
    for option, said in write_layouts(matching.golden_layout, matching.target_layout).items():
        words += [f"--{option}", said]
    unknown = ["MATCH_SET.json"] if matching.edits or matching.mappings else []
    for file in mappings or unknown:
        words += ["--mapping", file]
    return command_of(*words)


def command_of(*words: str) -> str:
    """Write a line of a shell."""
    return " ".join(map(_quoted, words))


def threshold_words(options: Options) -> list[str]:
    """Write each threshold that is moved as "factor=4"."""
    return [f"{name}={str(value).removesuffix('.0')}" for name, value in options.thresholds.moved().items()]


def _quoted(word: str) -> str:
    """Quote a word for a shell; bash and zsh take bytes that are no UTF-8 as they are `spelt`."""
    spelling = spelt(word)
    return shlex.quote(word) if spelling == word else "$'" + spelling.replace("'", r"\'") + "'"
