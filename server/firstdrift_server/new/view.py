"""The form for a new comparison: two folder browsers, the options, and the command that does the same."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from firstdrift.catalogue.comparisons.baselines import require_finished_baseline
from firstdrift.catalogue.comparisons.records import recent_paths
from firstdrift.comparison.levels import LEVELS
from firstdrift.comparison.report import Options
from firstdrift.errors import FirstdriftError, LimitError, PathOutsideRootsError, SettingsError
from firstdrift.groups import fields_of
from firstdrift.matching.ranks.parallel_sizes import write_layouts
from firstdrift.paths import inside, unspelt
from firstdrift.verdict.judge import RULES
from firstdrift.verdict.movable_thresholds import ABOUT
from firstdrift.wording.message import Message
from firstdrift_server.answers import located
from firstdrift_server.comparison_request import ComparisonRequest, require_slices
from firstdrift_server.context import Context
from firstdrift_server.new.pairs import PairView, pair_view, pairs_together
from firstdrift_server.parts.addresses import query_of
from firstdrift_server.parts.baselines import BaselineChoice, baseline_choices
from firstdrift_server.parts.command_line import compare_command, threshold_words
from firstdrift_server.parts.summary import distinct_names
from firstdrift_server.questions.dumps import dumps_inside
from firstdrift_server.questions.folders import (
    Entry,
    Folder,
    Order,
    describe_choice,
    is_there,
    list_folder,
    path_meant,
)
from firstdrift_server.questions.pairs import DumpPair
from firstdrift_server.uploads.view import dump_view

SIDES = ("golden", "target")
MOST_RECENT = 6
MOST_KNOWN = 50
"""The ends of so many paths that were compared are understood."""

OPTION_FIELDS = (
    *("rules", "level", "thresholds", "step", "rank", "token", "token_offset"),
    *("tp", "pp", "vpp", "mapping", "baseline", "note"),
)
DEFAULTS = {"rules": RULES[0], "token_offset": "0"}
HINT = Message.of("server.check_path")


class Place(Struct, frozen=True):
    """What was compared or uploaded lately, and the address that chooses it."""

    path: str
    name: str
    choose: str


class SideView(Struct, frozen=True):
    """The half of the form that chooses one dump.

    Attributes:
        entry: what is chosen; None if nothing is, or no dump.
        problem: what is wrong with it, `where`, and what to try.
        at: path of the folder that is shown.
        inside: the dumps in what is chosen, if it holds several.
        addresses: by path, those that open an entry and choose it.
        top: address that opens the list of roots.
    """

    side: str
    path: str
    entry: Entry | None
    problem: Message | None
    where: str
    hint: Message
    inside: list[Place]
    folder: Folder
    at: str
    addresses: dict[str, dict[str, str]]
    recent: list[Place]
    top: str


class NewView(Struct, frozen=True, kw_only=True):
    """The form, as far as it has been filled in.

    Attributes:
        orders: the address of each order of entries.
        pairs: dumps that lie together.
        changed: what of the options is not at its default, by the names of fields.
        swapped: address of the form with golden and target exchanged; None if neither is chosen.
        to_mend: the first side with a problem, if the comparison was refused.
        is_same: both sides are one dump.
        uploads: folder of uploads; None where they are switched off.
    """

    fields: dict[str, str]
    order: str
    orders: dict[str, str]
    pairs: list[PairView]
    changed: dict[str, str]
    swapped: str | None
    sides: list[SideView]
    to_mend: str | None
    is_same: bool
    options: Options
    rule_sets: tuple[str, ...]
    thresholds: list[str]
    levels: tuple[str, ...]
    baselines: list[BaselineChoice]
    command: str
    roots: list[str]
    uploads: str | None
    problem: Message | None
    hint: Message | None


def new_view(
    context: Context, fields: Mapping[str, str], *, refused: FirstdriftError | None = None
) -> NewView:
    """Lay the form out as far as it has been filled in; what is wrong with a field stands beside it.

    `refused` is why the comparison was not started, if it was to be; it is said once.
    """
    fields = meant_fields(context, fields)
    options, mappings, unread = _options(context, fields)
    sides = [_side(context, side, fields, is_needed=refused is not None) for side in SIDES]
    golden, target = sides[0].entry, sides[1].entry
    baselines, unfit = _baselines(context, golden, options.baseline)
    broken = None if refused is None else _first_broken(sides)
    said = refused if broken is None else None
    return NewView(
        fields={name: fields.get(name, "") for name in ComparisonRequest.model_fields},
        order=_order(fields),
        orders=_orders(fields),
        pairs=_pairs(context, fields),
        changed=_changed(fields),
        swapped=_swapped(fields),
        sides=sides,
        to_mend=broken,
        is_same=golden is not None and golden == target,
        options=options,
        rule_sets=RULES,
        thresholds=list(ABOUT),
        levels=LEVELS,
        baselines=baselines,
        command=compare_command(sides[0].path, sides[1].path, options, mappings, _path_of_chosen(baselines)),
        roots=list(map(str, context.roots)),
        uploads=str(context.uploads.folder) if context.uploads.quota else None,
        problem=unread
        or _missing(context, golden, target, options)
        or unfit
        or getattr(said, "message", None),
        hint=getattr(said, "advice", None),
    )


def meant_fields(context: Context, fields: Mapping[str, str]) -> dict[str, str]:
    """Give the fields with the paths that are meant, where somebody wrote them as pages show them."""
    written = [side for side in SIDES if not (fields.get(side, "").strip() or "/").startswith("/")]
    known = list(map(str, context.read(recent_paths, most=MOST_KNOWN))) if written else []
    at = {side: fields.get(f"{side}_at", "") for side in written}
    return dict(fields) | {
        side: path_meant(context.roots, fields[side].strip(), at[side], known) for side in written
    }


def _orders(fields: Mapping[str, str]) -> dict[str, str]:
    return {str(order): _address(fields, order=order) for order in Order}


def _pairs(context: Context, fields: Mapping[str, str]) -> list[PairView]:
    return [_pair(pair, fields) for pair in pairs_together(context)]


def _pair(pair: DumpPair, fields: Mapping[str, str]) -> PairView:
    chosen = {"golden": pair.golden.path, "target": pair.target.path}
    folders = {f"{side}_at": str(Path(path).parent) for side, path in chosen.items()}
    return pair_view(pair, _address(fields, **chosen, **folders), fields)


def _changed(fields: Mapping[str, str]) -> dict[str, str]:
    """Say which options are not at their defaults, as they were given."""
    ticked = {"structure": True, "fuzzy": False}
    given = {name: fields.get(name, "").strip() for name in OPTION_FIELDS}
    changed = {name: value for name, value in given.items() if value not in ("", DEFAULTS.get(name))}
    for name, default in ticked.items():
        is_ticked = fields.get(name) == "yes" if f"{name}_box" in fields else default
        changed |= {} if is_ticked == default else {name: "yes" if is_ticked else "no"}
    return changed


def _swapped(fields: Mapping[str, str]) -> str | None:
    if not any(fields.get(side, "") for side in SIDES):
        return None
    names = [f"{side}{of}" for side in SIDES for of in ("", "_at")]
    kept = {name: value for name, value in fields.items() if name not in names}
    turned = dict(zip(names, names[2:] + names[:2], strict=True))
    return _address(kept | {name: fields[other] for name, other in turned.items() if other in fields})


def _first_broken(sides: Sequence[SideView]) -> str | None:
    return next((side.side for side in sides if side.problem is not None), None)


def _path_of_chosen(baselines: Sequence[BaselineChoice]) -> str:
    return next((choice.path for choice in baselines if choice.is_chosen), "")


def _options(context: Context, fields: Mapping[str, str]) -> tuple[Options, tuple[str, ...], Message | None]:
    try:
        choice = ComparisonRequest.from_fields(fields)
        return choice.options(context), choice.mappings, None
    except FirstdriftError as error:
        return Options(), (), located(error)


def new_address(golden: str, target: str, options: Options, note: str = "") -> str:
    """Return the address of the form filled in with these choices."""
    matching = options.matching
    fields: dict[str, object] = {"golden": golden, "target": target, "rules": options.rules, "note": note}
    fields |= {"level": options.level, "token_offset": matching.token_offset or None}
    fields |= fields_of(matching, ("step", "rank", "token"))
    fields["baseline"] = options.baseline
    fields["thresholds"] = " ".join(threshold_words(options))
    fields |= write_layouts(matching.golden_layout, matching.target_layout)
    for box in ("fuzzy", "structure"):
        fields |= {f"{box}_box": 1, box: "yes" if getattr(matching, box) else None}
    return f"/new?{query_of({name: value for name, value in fields.items() if value not in (None, '')})}"


def _baselines(
    context: Context, golden: Entry | None, chosen: int | None
) -> tuple[list[BaselineChoice], Message | None]:
    """List what can be chosen as the baseline of a golden dump, and say what is wrong with what is chosen."""
    path = Path(golden.path) if golden is not None else None
    with context.reading() as session:
        listed = baseline_choices(session, path, chosen)
        try:
            if path is not None and chosen is not None:
                require_finished_baseline(session, chosen, path)
        except SettingsError as error:
            return listed, error.message
    return listed, None


def _address(fields: Mapping[str, str], **changed: str) -> str:
    """Return the address of the form as it is filled in, with changes."""
    kept = {name: value for name, value in fields.items() if value}
    return f"/new?{query_of(kept | changed)}"


def _order(fields: Mapping[str, str]) -> Order:
    return Order.NAME if fields.get("order") == Order.NAME else Order.RECENT


def _missing(
    context: Context, golden: Entry | None, target: Entry | None, options: Options
) -> Message | None:
    """Say what step, rank or token the dumps have not, where both are chosen."""
    if golden is None or target is None:
        return None
    try:
        require_slices(context, Path(golden.path), Path(target.path), options)
    except FirstdriftError as error:
        return error.message
    return None


def _side(context: Context, side: str, fields: Mapping[str, str], *, is_needed: bool) -> SideView:
    chosen, shown = fields.get(side, "").strip(), _shown_folder(context, side, fields)
    entry, wrong = _entry(context, side, chosen, is_needed=is_needed)
    folder, unlisted = _folder(context, shown, chosen, _order(fields))
    problem, hint, where = wrong or unlisted or (None, HINT, chosen)
    listed = (*folder.entries, *folder.above, *((folder.itself,) if folder.itself else ()))
    return SideView(
        side=side,
        path=unspelt(chosen),
        entry=entry,
        problem=problem,
        where=where,
        hint=hint,
        inside=_inside(context, fields, side) if wrong else [],
        folder=folder,
        at=folder.itself.path if folder.itself else "",
        addresses={
            each.path: {
                "open": _address(fields, **{f"{side}_at": each.path}),
                "choose": _choose(fields, side, each.path),
            }
            for each in listed
        },
        recent=[Place(path, name, _choose(fields, side, path)) for path, name in _recent(context)],
        top=_address(fields, **{f"{side}_at": ""}),
    )


def _inside(context: Context, fields: Mapping[str, str], side: str) -> list[Place]:
    """List the dumps in a folder that was chosen and is none itself."""
    try:
        found = context.ask(dumps_inside, context.roots, fields.get(side, "").strip())
    except FirstdriftError:  # what is wrong with the folder is said already
        return []
    return [Place(path, name, _choose(fields, side, path)) for path, name in found]


Wrong = tuple[Message, Message, str]
"""What is wrong, what to try, and with which path."""


def _entry(context: Context, side: str, chosen: str, *, is_needed: bool) -> tuple[Entry | None, Wrong | None]:
    """Say what is chosen, or what is wrong with it."""
    if is_needed and not chosen:
        missing = Message.of(f"server.no_{side}_chosen")
        return None, (missing, Message.of("server.paste_or_choose"), chosen)
    try:
        return context.ask(describe_choice, context.roots, chosen), None
    except FirstdriftError as error:
        where = chosen if error.path is None else str(error.path)
        return None, (error.message, error.advice or HINT, where)


def _folder(context: Context, shown: str, chosen: str, order: Order) -> tuple[Folder, Wrong | None]:
    """List the folder that is shown; where it cannot be listed, the roots, and why."""
    try:
        folder = listed_folder(context, shown, order)
        if not folder.is_whole and (begins := _typed_name(chosen, folder)):
            folder = listed_folder(context, shown, order, begins)
    except FirstdriftError as error:
        return listed_folder(context, "", order), (error.message, error.advice or HINT, shown)
    return folder, None


def listed_folder(context: Context, wanted: str, order: Order = Order.NAME, begins: str = "") -> Folder:
    """List a folder as `list_folder` does, in a child process.

    Where looking into what lies there takes too much, it is listed all the same, without formats.
    """
    try:
        return context.ask(list_folder, context.roots, wanted, order, begins)
    except LimitError:
        return list_folder(context.roots, wanted, order, begins, looks=False)


def _typed_name(typed: str, folder: Folder) -> str:
    """Give the beginning of a name in a folder that somebody typed, alone or with the path of the folder."""
    above, _, name = unspelt(typed).rpartition("/")
    return name if folder.itself is not None and above in ("", folder.itself.path) else ""


def _choose(fields: Mapping[str, str], side: str, path: str) -> str:
    """Give the address that chooses a dump; the other side, if nothing is chosen there, opens beside it."""
    other = next(one for one in SIDES if one != side)
    opened = (side,) if fields.get(other, "").strip() else SIDES
    folder = str(Path(path).parent)
    return _address(fields, **{side: path}, **{f"{one}_at": folder for one in opened})


def _recent(context: Context) -> list[tuple[str, str]]:
    """Give path and a short name of what was uploaded or compared last, as long as it is there."""
    compared = context.read(recent_paths, most=MOST_RECENT)
    uploaded = [dump_view(context, path) for path in context.uploads.listed()[:MOST_RECENT]]
    new = [Path(dump["path"]) for dump in uploaded if dump["format"]][:2]
    known = dict.fromkeys((*new, *compared))
    there = [str(path) for path in known if is_there(context.roots, path)][:MOST_RECENT]
    return [(path, _short(path, there)) for path in there]


def _short(path: str, among: Sequence[str]) -> str:
    """Shorten a path to its last two parts, or to as many as tell it apart from the others."""
    return max((distinct_names(path, other)[0] for other in among), key=len)


def _shown_folder(context: Context, side: str, fields: Mapping[str, str]) -> str:
    """Show the folder that was opened; else the one the chosen dumps lie in; else the only root."""
    if f"{side}_at" in fields:
        return fields[f"{side}_at"]
    chosen = next((fields[name].strip() for name in (side, *SIDES) if fields.get(name, "").strip()), "")
    parent = Path(chosen).parent
    try:
        is_listed = bool(chosen) and inside(context.roots, str(parent)).is_dir()
    except (OSError, PathOutsideRootsError):  # a folder that may not be looked into, or none at all
        is_listed = False
    roots = context.settings.roots
    return str(parent) if is_listed else str(roots[0]) if len(roots) == 1 else ""
