"""A rollout held against a trainer as text for a terminal, as JSON and as CSV."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec.structs import asdict

from firstdrift.exports.spreadsheets import write_csv_of_rows
from firstdrift.groups import fields_of
from firstdrift.paths import printable
from firstdrift.remote.addresses import name_of
from firstdrift.rollout.experts import ExpertsOfPair
from firstdrift.rollout.read import placed
from firstdrift.rollout.report import ExpertsReport, PositionBin, RolloutReport, SequencePair
from firstdrift.rollout.routing import Routed
from firstdrift.rollout.sequences import RowProblem, Side
from firstdrift.rollout.statistics import as_object, differences
from firstdrift.wording.message import Argument, Message
from firstdrift.wording.text import text_of, word

CSV_COLUMNS: Final = (
    *("sequence", "prompt", "position", "token", "text", "rollout", "trainer", "difference", "ratio"),
    *("probability_difference", "state"),
)
LEFT_OUT: Final = (
    *("rollout_only", "trainer_only", "other_tokens", "other_lengths", "tokens_unknown"),
    *("missing", "unmasked", "unreadable"),
)
_SHOWN: Final = 10


def rollout_text(report: RolloutReport) -> str:
    """Write the answer as text: the finding first."""
    low, high = report.options.band
    found = report.statistics
    lines = [
        text_of(report.summary),
        *(_row("hint", hint) for hint in report.hints),
        *(_row(side, _side(getattr(report, side))) for side in ("rollout", "trainer")),
        _row("paired", _said("paired", pairs=report.counts.sequences, by=report.pairing.by)),
        _row("difference", _of(found, "difference", "mean", "mean_abs", "max_abs", "deviation")),
        _row("estimates", _of(found, "estimates", "k1", "k2", "k3")),
        _row(
            "ratio",
            _said(
                "ratio",
                share=found.outside_share,
                low=low,
                high=high,
                lowest=found.lowest_ratio,
                highest=found.highest_ratio,
            ),
        ),
        _row(
            "probability",
            _said(
                "probability",
                mean=found.mean_probability,
                max=found.max_probability,
                correlation=found.correlation,
            ),
        ),
        _row("noise", _said("noise", scale=report.scale, out=report.counts.out)),
        *(_row("experts", said) for said in experts_said(report)),
        *(_row("left_out", said) for said in left_out(report)),
        *(
            _row("problem", placed(one))
            for side in (report.rollout, report.trainer)
            for one in side.problems[:_SHOWN]
        ),
        *(_row("positions", _position(one)) for one in report.positions),
        *(_row("sequence", sequence_said(pair)) for pair in report.pairs[:_SHOWN]),
    ]
    if (left := len(report.pairs) - _SHOWN) > 0:
        lines.append(f"  {text_of(_said('more', count=left))}")
    return "\n".join(map(printable, lines))


def _problems(report: RolloutReport) -> list[RowProblem]:
    return [*report.rollout.problems, *report.trainer.problems]


def left_out(report: RolloutReport) -> list[Message]:
    """Say what was not compared, or in no mean, so far as there is any of it."""
    counted = [(name, getattr(report.counts, name)) for name in LEFT_OUT]
    counted.append(("not_finite", report.statistics.not_finite))
    return [Message.of(f"rollout.left_out.{name}", count=count) for name, count in counted if count]


def experts_said(report: RolloutReport) -> list[Message]:
    """Say what was compared of experts."""
    if report.experts is None:
        return []
    known, said = report.experts, []
    sets, other = (sum(getattr(one, name) for one in known.layers) for name in ("sets", "other"))
    if known.first is not None:
        names = {pair.number: pair.name for pair in report.pairs}
        number, token, layer = known.first
        first: dict[str, Argument] = {"sequence": names[number], "token": token, "layer": layer}
        said.append(_said("experts", equal=1 - other / sets, sets=sets, **first))
    elif sets:
        said.append(_said("experts_equal", sets=sets))
        said.append(_said("other_share", share=known.other_share))
    said += map(_routed, known.routed)
    reasons = known.not_compared.items()
    return said + [_said("experts_not_compared", sequences=count, reason=why) for why, count in reasons]


def _routed(one: Routed) -> Message:
    found = one.statistics
    said = {"tokens": found.tokens, "share": one.share, "mean_abs": found.mean_abs, "scale": one.scale}
    if not one.first:
        return _said("routed_not", **said)
    return _said("routed", first=one.first, last=one.last, **said)


def sequence_said(pair: SequencePair) -> Message:
    """Say what was found in a sequence."""
    found: dict[str, Argument] = {
        "name": pair.name,
        "verdict": Message.of(f"rollout_verdict.{pair.verdict.replace(' ', '_')}"),
        "mean_abs": pair.statistics.mean_abs,
        "out": int(pair.out.sum()),
        "tokens": pair.statistics.tokens,
    }
    if pair.first_found is None:
        return _said("sequence", **found)
    return _said("sequence_at", first=pair.first_found, **found)


def rollout_object(report: RolloutReport) -> dict[str, Any]:
    """Return the answer as `firstdrift rollout --json` prints it."""
    return {
        "summary": text_of(report.summary),
        "finding": report.summary,
        "verdict": report.verdict.value,
        "hints": list(report.hints),
        "options": {"band": list(report.options.band), "dtype": report.options.dtype},
        "explained_by_rounding": report.options.explained,
        "rollout": _side_object(report.rollout),
        "trainer": _side_object(report.trainer),
        "paired_by": report.pairing.by,
        "counts": asdict(report.counts),
        "statistics": as_object(report.statistics) | {"noise": report.scale},
        "positions": list(map(_position_object, report.positions)),
        "prompts": [
            {"prompt": one.name, "sequences": one.sequences, "out": one.out} | as_object(one.statistics)
            for one in report.prompts
        ],
        "bias": None if report.bias is None else {"mean": report.bias.mean, "errors": report.bias.errors},
        "experts": None if report.experts is None else _experts_object(report.experts),
        "unpaired": {
            "rollout": _names(report.rollout, report.pairing.rollout_only),
            "trainer": _names(report.trainer, report.pairing.trainer_only),
        },
        "sequences": list(map(sequence_object, report.pairs)),
    }


def sequence_object(pair: SequencePair) -> dict[str, Any]:
    """Return what is known of a sequence, without its tokens."""
    experts = pair.experts
    return {
        "number": pair.number,
        "sequence": pair.name,
        "prompt": pair.prompt,
        "verdict": pair.verdict.value,
        "first_token": pair.first_found,
        "first_out": pair.first_out,
        "other_token": pair.other_token,
        "out": int(pair.out.sum()),
        "rerouted": int(pair.rerouted.sum()),
        "noise": pair.scale,
        "lengths": {"rollout": len(pair.rollout), "trainer": len(pair.trainer)},
        "lines": {
            side: {"file": one.file, "line": one.line}
            for side, one in (("rollout", pair.rollout), ("trainer", pair.trainer))
        },
        "missing": pair.missing,
        "unmasked": pair.unmasked,
        "statistics": as_object(pair.statistics),
        "experts": _experts_of_pair(experts) if isinstance(experts, ExpertsOfPair) else experts,
        "hints": list(pair.hints),
    }


def token_rows(pair: SequencePair) -> Iterator[dict[str, Any]]:
    """Yield what is known of each token of a sequence; `state` says what became of it."""
    longer = max(len(pair.rollout), len(pair.trainer))
    d = np.full(longer, np.nan)
    d[pair.compared] = differences(
        pair.rollout.log_probs[pair.compared], pair.trainer.log_probs[pair.compared]
    )
    states = _states(pair, longer)
    for place in range(longer):
        ours, theirs = (_at(side.log_probs, place) for side in (pair.rollout, pair.trainer))
        apart = None if math.isnan(d[place]) else float(d[place])
        yield {
            "position": place,
            "token": _at(pair.rollout.tokens, place, _at(pair.trainer.tokens, place)),
            "text": _at(pair.rollout.texts, place, _at(pair.trainer.texts, place)),
            "rollout": ours,
            "trainer": theirs,
            "difference": apart,
            "ratio": None if apart is None else _exp(apart),
            "probability_difference": None if apart is None or ours is None else _exp(theirs) - _exp(ours),
            "state": states[place],
        }


def write_rollout_csv(report: RolloutReport, file: Path) -> None:
    """Write a line for each token of each sequence, the worst sequences first.

    Raises:
        OSError: it cannot be written.
    """
    rows = (
        (pair.name, pair.prompt, *(row[name] for name in CSV_COLUMNS[2:]))
        for pair in report.pairs
        for row in token_rows(pair)
    )
    write_csv_of_rows(CSV_COLUMNS, rows, file)


def _states(pair: SequencePair, length: int) -> list[str]:
    states = ["not compared"] * length
    for place, is_out, is_rerouted in zip(
        pair.compared.tolist(), pair.out.tolist(), pair.rerouted.tolist(), strict=True
    ):
        states[place] = "other experts" if is_rerouted else "out" if is_out else "within"
    for side in (pair.rollout, pair.trainer):
        for place in np.flatnonzero(~side.counts).tolist():
            states[place] = "masked"
        for place in np.flatnonzero(side.missing & side.counts).tolist():
            states[place] = "missing"
    if pair.other_token is not None:
        states[pair.other_token] = "other token"
    return states


def _at(values: Any, place: int, otherwise: Any = None) -> Any:  # noqa: ANN401 (whatever the array holds)
    if values is None or place >= len(values):
        return otherwise
    found = values[place]
    return found.item() if isinstance(found, np.generic) else found


def _exp(value: float) -> float:
    return float(np.exp(value)) if value < 709 else math.inf  # noqa: PLR2004 (the largest float64 has)


def _side(side: Side) -> Message:
    sizes = {"sequences": len(side.sequences), "files": side.files}
    return _said("side", path=name_of(Path(side.path)), fields=side.fields, **sizes)


def _side_object(side: Side) -> dict[str, Any]:
    return {
        "path": name_of(Path(side.path)),
        "files": side.files,
        "sequences": len(side.sequences),
        "fields": list(side.fields),
        "unreadable": side.problem_count,
        "problems": [{"file": one.file, "line": one.line, "reason": one.reason} for one in side.problems],
    }


def _names(side: Side, places: Sequence[int]) -> list[dict[str, Any]]:
    return [{"file": side.sequences[place].file, "line": side.sequences[place].line} for place in places]


def _experts_object(experts: ExpertsReport) -> dict[str, Any]:
    first = experts.first
    return {
        "layers": [
            {"layer": one.layer, "sets": one.sets, "other": one.other, "equal_share": one.equal_share}
            for one in experts.layers
        ],
        "first_layer": experts.first_layer,
        "first": first and dict(zip(("number", "token", "layer"), first, strict=True)),
        "other_share": experts.other_share,
        "routed": [
            {"first": one.first, "last": one.last, "share": one.share, "noise": one.scale}
            | as_object(one.statistics)
            for one in experts.routed
        ],
        "not_compared": [{"reason": why, "sequences": n} for why, n in experts.not_compared.items()],
    }


def _experts_of_pair(experts: ExpertsOfPair) -> dict[str, Any]:
    first = experts.first
    return {
        "sets": int(experts.equal.size),
        "other": int((~experts.equal).sum()),
        "first": first and {"token": experts.first_token + first[0], "layer": first[1]},
    }


def _position_object(one: PositionBin) -> dict[str, Any]:
    place = {"first": one.first, "last": one.last, "noise": one.scale, "out": one.out}
    return place | as_object(one.statistics)


def _position(one: PositionBin) -> Message:
    place = {"first": one.first, "last": one.last, "scale": one.scale, "out": one.out}
    return _said("positions", mean_abs=one.statistics.mean_abs, **place)


def _of(found: object, which: str, *names: str) -> Message:
    return _said(which, **fields_of(found, names))


def _said(which: str, /, **arguments: Argument) -> Message:
    return Message.of(f"rollout.text.{which}", **arguments)


def _row(title: str, said: Message) -> str:
    return f"{word('rollout.title', title):<13} {text_of(said)}"
