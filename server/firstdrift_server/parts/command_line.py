"""The command that does in a terminal what a page does."""

import shlex
from collections.abc import Iterator, Sequence

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
    words = ["firstdrift", "compare", golden or "GOLDEN", target or "TARGET"]
    for name, value in _chosen(options, mappings, baseline):
        if value is not None and value is not False:
            words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return command_of(*words)


def _chosen(options: Options, mappings: Sequence[str], baseline: str) -> Iterator[tuple[str, object]]:
    """Give each option with its value: true if it has none, false or None if it is left out."""
    matching = options.matching
    yield "rules", None if options.rules == Options().rules else options.rules
    for moved in threshold_words(options):
        yield "threshold", moved
    yield "baseline", None if options.baseline is None else baseline or "HEALTHY"
    yield "level", options.level or None
    yield "fuzzy", matching.fuzzy
    yield "no-structure", not matching.structure
    for name in ("step", "rank", "token"):
        yield name, getattr(matching, name)
    yield "token-offset", matching.token_offset or None
    yield from write_layouts(matching.golden_layout, matching.target_layout).items()
    unknown = ["MATCH_SET.json"] if matching.edits or matching.mappings else []
    for file in mappings or unknown:
        yield "mapping", file


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
