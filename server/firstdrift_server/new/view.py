"""The form for a new comparison: two folder browsers, the options, and the command that does the same."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from firstdrift.catalogue.comparisons.baselines import require_finished_baseline
from firstdrift.catalogue.comparisons.records import recent_paths
from firstdrift.comparison.levels import LEVELS
from firstdrift.comparison.report import Options
from firstdrift.errors import FirstdriftError, PathOutsideRootsError, SettingsError
from firstdrift.matching.ranks.parallel_sizes import write_layouts
from firstdrift.paths import inside, unspelt
from firstdrift.verdict.judge import RULES
from firstdrift.verdict.thresholds import ABOUT
from firstdrift.wording.message import Message
from firstdrift_server.answers import located
from firstdrift_server.comparison_request import ComparisonRequest, require_slices
from firstdrift_server.context import Context
from firstdrift_server.new.folders import listed_folder
from firstdrift_server.parts.addresses import query_of
from firstdrift_server.parts.baselines import baseline_choices
from firstdrift_server.parts.command_line import compare_command, threshold_words
from firstdrift_server.parts.summary import distinct_names
from firstdrift_server.questions.folders import Folder, Order, describe_choice, is_there
from firstdrift_server.uploads.view import dump_view

SIDES = ("golden", "target")
MOST_RECENT = 6
HINT = Message.of("server.check_path")


def new_view(
    context: Context, fields: Mapping[str, str], *, refused: FirstdriftError | None = None
) -> dict[str, Any]:
    """Lay the form out as far as it has been filled in; what is wrong with a field stands beside it.

    Args:
        context: of the server.
        fields: as they are filled in.
        refused: why the comparison was not started, if it was to be; it is said once.
    """
    roots = context.roots
    options, mappings, problem = _options(context, fields)
    golden, target = (unspelt(fields.get(side, "").strip()) for side in SIDES)
    sides = [_side(context, side, fields, is_needed=refused is not None) for side in SIDES]
    chosen = [Path(side["entry"].path) for side in sides if side["entry"] is not None]
    if problem is None and len(chosen) == len(SIDES):
        problem = _missing(context, chosen[0], chosen[1], options)
    trusted = sides[0]["entry"]
    baselines, unfit = _baselines(context, Path(trusted.path) if trusted else None, options.baseline)
    problem = problem or unfit
    hint = None
    if refused is not None and all(side["problem"] is None for side in sides):
        problem, hint = problem or refused.message, refused.advice
    return {
        "fields": {name: fields.get(name, "") for name in ComparisonRequest.model_fields},
        "order": str(_order(fields)),
        "orders": {str(order): _address(fields, order=str(order)) for order in Order},
        "sides": sides,
        "to_mend": refused and next((side["side"] for side in sides if side["problem"]), None),
        "is_same": len(chosen) == len(SIDES) and len(set(chosen)) == 1,
        "options": options,
        "rule_sets": RULES,
        "thresholds": list(ABOUT),
        "levels": LEVELS,
        "baselines": baselines,
        "command": compare_command(
            golden,
            target,
            options,
            mappings,
            next((one["path"] for one in baselines if one["is_chosen"]), ""),
        ),
        "roots": [str(root) for root in roots],
        "uploads": str(context.uploads.folder) if context.uploads.quota else None,
        "problem": problem,
        "hint": hint,
    }


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
    fields |= {name: getattr(matching, name) for name in ("step", "rank", "token")}
    fields["baseline"] = options.baseline
    fields["thresholds"] = " ".join(threshold_words(options))
    fields |= write_layouts(matching.golden_layout, matching.target_layout)
    for box in ("fuzzy", "structure"):
        fields |= {f"{box}_box": 1, box: "yes" if getattr(matching, box) else None}
    return f"/new?{query_of({name: value for name, value in fields.items() if value not in (None, '')})}"


def _baselines(
    context: Context, golden: Path | None, chosen: int | None
) -> tuple[list[dict[str, Any]], Message | None]:
    """List what can be chosen as the baseline of a golden dump, and say what is wrong with what is chosen."""
    with context.reading() as session:
        listed = baseline_choices(session, golden, chosen)
        try:
            if golden is not None and chosen is not None:
                require_finished_baseline(session, chosen, golden)
        except SettingsError as error:
            return listed, error.message
    return listed, None


def _address(fields: Mapping[str, str], **changed: str) -> str:
    """Return the address of the form as it is filled in, with changes."""
    kept = {name: value for name, value in fields.items() if value}
    return f"/new?{query_of(kept | changed)}"


def _order(fields: Mapping[str, str]) -> Order:
    return Order.NAME if fields.get("order") == Order.NAME else Order.RECENT


def _missing(context: Context, golden: Path, target: Path, options: Options) -> Message | None:
    try:
        require_slices(context, golden, target, options)
    except FirstdriftError as error:
        return error.message
    return None


def _side(context: Context, side: str, fields: Mapping[str, str], *, is_needed: bool) -> dict[str, Any]:
    order = _order(fields)
    chosen, problem, hint = fields.get(side, "").strip(), None, HINT
    entry = folder = None
    where = chosen
    try:
        entry = context.ask(describe_choice, context.roots, chosen)
    except FirstdriftError as error:
        problem, hint = error.message, error.advice or HINT
        where = chosen if error.path is None else str(error.path)
    if is_needed and not chosen:
        problem, hint = Message.of(f"server.no_{side}_chosen"), Message.of("server.paste_or_choose")
    shown = _shown_folder(context, side, fields)
    try:
        folder = listed_folder(context, shown, order)
        if not folder.is_whole and (begins := _typed_name(chosen, folder)):
            folder = listed_folder(context, shown, order, begins)
    except FirstdriftError as error:
        folder = listed_folder(context, "", order)
        if problem is None:
            problem, hint, where = error.message, error.advice or HINT, shown
    listed = (*folder.entries, *folder.above, *((folder.itself,) if folder.itself else ()))
    return {
        "side": side,
        "path": unspelt(chosen),
        "entry": entry,
        "problem": problem,
        "where": where,
        "hint": hint,
        "folder": folder,
        "at": folder.itself.path if folder.itself else "",
        "addresses": {
            shown.path: {
                "open": _address(fields, **{f"{side}_at": shown.path}),
                "choose": _choose(fields, side, shown.path),
            }
            for shown in listed
        },
        "recent": [
            {"path": path, "name": name, "choose": _choose(fields, side, path)}
            for path, name in _recent(context)
        ],
        "top": _address(fields, **{f"{side}_at": ""}),
    }


def _typed_name(typed: str, folder: Folder) -> str:
    """Give the beginning of a name in a folder that somebody typed, alone or with the path of the folder."""
    above, _, name = unspelt(typed).rpartition("/")
    return name if folder.itself is not None and above in ("", folder.itself.path) else ""


def _choose(fields: Mapping[str, str], side: str, path: str) -> str:
    return _address(fields, **{side: path, f"{side}_at": str(Path(path).parent)})


def _recent(context: Context) -> list[tuple[str, str]]:
    """Give path and a short name of what was uploaded or compared last, as long as it is there."""
    with context.reading() as session:
        compared = recent_paths(session, most=MOST_RECENT)
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
