"""A rollout held against a trainer: the form that chooses their files, the answer, and each sequence."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from firstdrift.errors import FirstdriftError, SettingsError
from firstdrift.paths import inside, unspelt
from firstdrift.rollout.sources import SUFFIXES, stamps_of
from firstdrift.rollout.thresholds import BAND, EXPLAINED
from firstdrift.wording.message import Message
from firstdrift_server.answers import located
from firstdrift_server.context import Context
from firstdrift_server.parts.addresses import query_of
from firstdrift_server.parts.command_line import command_of
from firstdrift_server.questions.folders import Order, list_folder
from firstdrift_server.questions.rollout import (
    MOST_TOKENS,
    AskedRollout,
    rollout_overview,
    rollout_sequence,
)
from firstdrift_server.validation import read_number

DTYPES: Final = tuple(EXPLAINED)
_FIELDS: Final = ("rollout", "trainer", "low", "high", "dtype")


def rollout_view(context: Context, given: Mapping[str, str]) -> tuple[dict[str, Any], FirstdriftError | None]:
    """Lay out the form, and the answer if both sides are chosen; or what is wrong with them."""
    fields = _fields(given)
    answer = None
    refused: FirstdriftError | None = None
    is_half_chosen = "at" in given and not fields["trainer"]  # the list of files asks for the other side
    if not fields["rollout"] and "rollout" in given and "at" not in given:
        refused = SettingsError(Message.of("rollout.choose_rollout"), hint=Message.of("rollout.choose_files"))
    elif fields["rollout"] and not is_half_chosen:
        try:
            asked = _asked(context, fields)
            answer = _kept(context, asked, rollout_overview)
        except FirstdriftError as error:
            refused = error
    view = {
        "fields": fields,
        "dtypes": DTYPES,
        "address": address_of(fields),
        "command": _command(fields),
        "problem": None if refused is None else located(refused),
        "hint": None if refused is None else refused.advice,
        "choose": _choices(context, fields, given.get("at", "")),
        "answer": answer and _with_addresses(answer, fields),
    }
    return view, refused


def sequence_view(context: Context, number: int, given: Mapping[str, str]) -> dict[str, Any]:
    """Describe a sequence with its tokens.

    Raises:
        NotInCatalogueError: there is none of that number.
        FirstdriftError: the sides cannot be compared.
    """
    fields = _fields(given)
    first = read_number(given.get("first"), "first")
    found = _kept(context, _asked(context, fields), rollout_sequence, number, first)
    here, start = address_of(fields, number), found["start"]
    token = found["first_token"] or 0
    shown = len(found["tokens"])
    return found | {
        "fields": fields,
        "whole": address_of(fields),
        "address": here,
        "before": f"{here}&first={max(0, start - MOST_TOKENS)}" if start else None,
        "behind": f"{here}&first={start + shown}" if start + shown < found["length"] else None,
        "at_first": f"{here}#t{token}" if found["first_token"] is not None else None,
        "token": token,
        "command": command_of("firstdrift", "compare", "GOLDEN", "TARGET", "--token", str(token)),
        "new": f"/new?{query_of({'token': token})}",
    }


def address_of(fields: Mapping[str, str], number: int | None = None) -> str:
    """Return the address of an answer, or of a sequence in it."""
    usual = {"low": str(BAND[0]), "high": str(BAND[1]), "dtype": DTYPES[0]}
    chosen = {name: fields[name] for name in _FIELDS if fields[name] and fields[name] != usual.get(name)}
    path = "/rollout" if number is None else f"/rollout/{number}"
    return f"{path}?{query_of(chosen)}" if chosen else path


def _fields(given: Mapping[str, str]) -> dict[str, str]:
    usual = {"low": str(BAND[0]), "high": str(BAND[1]), "dtype": DTYPES[0]}
    return {name: given.get(name, "").strip() or usual.get(name, "") for name in _FIELDS}


def _asked(context: Context, fields: Mapping[str, str]) -> AskedRollout:
    try:
        low, high = float(fields["low"]), float(fields["high"])
    except ValueError as error:
        raise SettingsError(Message.of("rollout.choose_band")) from error
    rollout = inside(context.roots, fields["rollout"])
    trainer = inside(context.roots, fields["trainer"] or fields["rollout"])
    stamps = stamps_of(rollout, context.roots), stamps_of(trainer, context.roots)
    return AskedRollout(rollout, trainer, low, high, fields["dtype"], stamps)


def _kept(context: Context, asked: AskedRollout, question: Any, *given: object) -> dict[str, Any]:  # noqa: ANN401 (any question of this room)
    """Give an answer that is known, or have it found in a child process."""
    key = (question.__name__, asked, given)
    return context.rollouts.get(key, lambda: context.look(question, asked, context.roots, *given))


def _with_addresses(answer: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    def addressed(one: Mapping[str, Any]) -> dict[str, Any]:
        return {**one, "address": address_of(fields, one["number"])}

    drawn = answer["heat_map"]
    return {
        **answer,
        "sequences": list(map(addressed, answer["sequences"])),
        "heat_map": {**drawn, "rows": list(map(addressed, drawn["rows"]))},
    }


def _command(fields: Mapping[str, str]) -> str:
    words = ["firstdrift", "rollout", fields["rollout"] or "ROLLOUT", fields["trainer"]]
    if (fields["low"], fields["high"]) != tuple(map(str, BAND)):
        words += ["--band", fields["low"], fields["high"]]
    words += ["--dtype", fields["dtype"]] if fields["dtype"] != DTYPES[0] else []
    return command_of(*filter(None, words))


def _choices(context: Context, fields: Mapping[str, str], at: str) -> dict[str, Any]:
    """List a folder with what can be chosen in it; the roots where it cannot be listed."""
    chosen = unspelt(at or fields["trainer"] or fields["rollout"])
    folder = str(Path(chosen) if at else Path(chosen).parent) if chosen else ""
    try:
        found = context.ask(list_folder, context.roots, folder, Order.NAME, looks=False, suffixes=SUFFIXES)
    except FirstdriftError:
        found = context.ask(list_folder, context.roots, "", Order.NAME, looks=False, suffixes=SUFFIXES)

    def entry(one: Any, *, is_here: bool = False) -> dict[str, Any]:  # noqa: ANN401
        choose = {
            side: f"/rollout?{query_of({**fields, side: one.path, 'at': at or folder})}"
            for side in _FIELDS[:2]
        }
        open_ = f"/rollout?{query_of({**fields, 'at': one.path})}" if one.is_folder else None
        return {"name": one.name, "path": one.path, "open": open_, "choose": choose, "is_here": is_here}

    return {
        "above": list(map(entry, found.above)),
        "here": None if found.itself is None else entry(found.itself, is_here=True),
        "entries": list(map(entry, found.entries)),
        "hidden": found.hidden,
    }
