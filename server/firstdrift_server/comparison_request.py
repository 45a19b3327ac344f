"""What somebody chose to compare: from a form, from an address or from JSON, checked in one place."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, ValidationError

from firstdrift.catalogue.comparisons.baselines import require_finished_baseline
from firstdrift.catalogue.comparisons.records import create_comparison
from firstdrift.comparison.levels import LEVELS
from firstdrift.comparison.report import Options
from firstdrift.errors import SettingsError
from firstdrift.matching.manual.edits import MatchSetFile
from firstdrift.matching.plan import MatchingRules
from firstdrift.matching.ranks.parallel_sizes import read_layouts
from firstdrift.verdict.judge import RULES
from firstdrift.verdict.movable_thresholds import thresholds_of_words
from firstdrift.wording.message import Message
from firstdrift_server.context import Context
from firstdrift_server.questions.dumps import real_dump, require_chosen, said_by_files
from firstdrift_server.validation import PathText, Sent, complaint, require_known

Coordinate = Annotated[int, Field(ge=0, le=10**9)]
Sizes = Annotated[str, Field(max_length=20)]
MOST_MAPPINGS = 16


class ComparisonRequest(Sent):
    """Two dumps, and how they are to be compared.

    Attributes:
        tp: over how many ranks the models are spread, "1:2" for golden and target; likewise pp and vpp.
        thresholds: those that are moved, "factor=4 floor=16".
        baseline: the comparison of the golden dump with a healthy run, whose errors are no faults.
        mapping: paths of mapping files below the roots, one a line.
    """

    golden: PathText = ""
    target: PathText = ""
    rules: str = RULES[0]
    level: str | None = None
    fuzzy: bool = False
    structure: bool = True
    step: Coordinate | None = None
    rank: Coordinate | None = None
    token: Coordinate | None = None
    token_offset: Annotated[int, Field(ge=-(10**9), le=10**9)] = 0
    tp: Sizes = ""
    pp: Sizes = ""
    vpp: Sizes = ""
    thresholds: Annotated[str, Field(max_length=1000)] = ""
    baseline: Annotated[int, Field(ge=1, le=10**9)] | None = None
    mapping: Annotated[PathText, Field(max_length=8192)] = ""
    note: Annotated[str, Field(max_length=2000)] = ""

    @classmethod
    def from_fields(cls, fields: Mapping[str, str]) -> Self:
        """Read what a form or an address says; fields left empty are left at their defaults.

        Raises:
            SettingsError: a value makes no sense.
        """
        given = {name: fields[name].strip() for name in cls.model_fields if fields.get(name, "").strip()}
        # A box that is not ticked is not sent at all, so the form says beside it that there is one.
        boxes = {name: given.get(name) == "yes" for name in ("fuzzy", "structure") if f"{name}_box" in fields}
        try:
            return cls.model_validate(given | boxes)
        except ValidationError as error:
            raise SettingsError(complaint(error.errors())) from error

    @property
    def mappings(self) -> tuple[str, ...]:
        """The mapping files."""
        return tuple(filter(None, map(str.strip, self.mapping.splitlines())))

    def options(self, context: Context | None = None) -> Options:
        """Give the options of the comparison.

        Raises:
            SettingsError: there is no such rule set, level or threshold, or a mapping file makes no sense.
            PathOutsideRootsError: a mapping file lies outside the roots.
        """
        require_known(self.rules, RULES, Message.of("server.no_rule_set", name=self.rules))
        if self.level is not None:
            require_known(self.level, LEVELS, Message.of("server.no_such_level", name=self.level))
        said = self._said(context)
        golden, target = read_layouts(self.tp or None, self.pp or None, self.vpp or None)
        matching = MatchingRules(
            fuzzy=self.fuzzy,
            structure=self.structure,
            step=self.step,
            rank=self.rank,
            token=self.token,
            token_offset=self.token_offset,
            mappings=said.mappings,
            edits=said.edits,
            golden_layout=golden,
            target_layout=target,
        )
        thresholds = thresholds_of_words(self.thresholds.split())
        return Options(
            matching=matching,
            rules=self.rules,
            level=self.level,
            thresholds=thresholds,
            baseline=self.baseline,
        )

    def _said(self, context: Context | None) -> MatchSetFile:
        if not self.mappings or context is None:
            return MatchSetFile("")
        if len(self.mappings) > MOST_MAPPINGS:
            raise SettingsError(Message.of("server.many_mapping_files", most=MOST_MAPPINGS))
        return context.ask(said_by_files, list(map(Path, self.mappings)), context.roots)

    def ask(self, context: Context) -> int:
        """Ask for the comparison; return its id.

        Raises:
            SettingsError: the options make no sense, no slice of a dump is what was chosen, or the baseline
                cannot be used.
            PathOutsideRootsError: a dump lies outside the roots.
            DumpError: one of the two is no dump, and why.
        """
        options = self.options(context)
        golden, target = self.dumps(context)
        require_slices(context, golden, target, options)
        with context.writing() as session:
            if options.baseline is not None:
                require_finished_baseline(session, options.baseline, golden)
            made = create_comparison(session, golden, target, options, note=self.note)
            context.about(comparison=made)
            return made

    def dumps(self, context: Context) -> tuple[Path, Path]:
        """Give the golden and the target dump.

        Raises:
            SettingsError: one of the two is not chosen.
            PathOutsideRootsError: one lies outside the roots.
            DumpError: one is no dump, and why.
        """
        for side, path in (("golden", self.golden), ("target", self.target)):
            if not path:
                raise SettingsError(
                    Message.of(f"server.no_{side}_chosen"), hint=Message.of(f"server.choose_{side}")
                )
        roots = context.roots
        golden, target = (context.ask(real_dump, roots, path) for path in (self.golden, self.target))
        return golden, target


def require_slices(context: Context, golden: Path, target: Path, options: Options) -> None:
    """Make sure, before a worker finds out, that the dumps have the chosen step, rank and token.

    Raises:
        SettingsError: one has not, and what it has.
        DumpError: a file that all else hangs on is damaged.
    """
    chosen = options.matching
    if (chosen.step, chosen.rank, chosen.token) != (None, None, None):
        context.ask(require_chosen, golden, target, chosen)
