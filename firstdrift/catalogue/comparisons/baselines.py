"""What the comparison of a healthy run shows, for another comparison to be judged by."""

from collections.abc import Mapping
from pathlib import Path

from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.records import Comparison, get_comparison
from firstdrift.catalogue.comparisons.slice_pairs import slice_pairs_of
from firstdrift.catalogue.comparisons.tree import row_fields
from firstdrift.catalogue.tables import JobState
from firstdrift.errors import NotInCatalogueError, SettingsError
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.baseline import QUIET, Noise
from firstdrift.wording.message import Message


def noise_places(session: Session, baseline: int | None) -> dict[Coordinates, int]:
    """Say in which slice pair of a comparison the noise of each golden slice is; of none without a baseline.

    Raises:
        SettingsError: the comparison is gone.
    """
    if baseline is None:
        return {}
    try:
        get_comparison(session, baseline)
    except NotInCatalogueError as error:
        raise SettingsError(
            Message.of("catalogue.baseline.gone", baseline=baseline),
            hint=Message.of("catalogue.hint.other_baseline_or_none"),
        ) from error
    return {pair.golden: pair.id for pair in slice_pairs_of(session, baseline)}


def load_noise(session: Session, places: Mapping[Coordinates, int], golden: Coordinates) -> Noise:
    """Read the errors of the nodes of a golden slice in the healthy run; none if it has no such slice."""
    if golden not in places:
        return QUIET
    names = ("tree.golden", "tree.match", "judgement.input_error", "judgement.output_error")
    found = row_fields(session, places[golden], *names)
    inputs: dict[str, float] = {}
    outputs: dict[str, float] = {}
    for nodes, match, given, gave in found:
        if match is None:
            continue
        if given is not None:
            inputs |= dict.fromkeys(nodes, given)
        if gave is not None:
            outputs |= dict.fromkeys(nodes, gave)
    return Noise(inputs, outputs)


def require_finished_baseline(
    session: Session, baseline: int, golden: Path | None = None
) -> dict[Coordinates, int]:
    """Make sure that a comparison can tell noise, and say where, as `noise_places`.

    Raises:
        SettingsError: it is gone, not finished, or not one of this golden dump.
    """
    places = noise_places(session, baseline)
    found = get_comparison(session, baseline)
    if found.state is not JobState.DONE:
        raise SettingsError(
            Message.of("catalogue.baseline.not_finished", baseline=baseline),
            hint=Message.of("catalogue.hint.choose_when_finished"),
        )
    if golden is not None and found.golden_path != golden:
        raise SettingsError(
            Message.of("catalogue.baseline.other_golden", baseline=baseline),
            hint=Message.of("catalogue.hint.choose_healthy_run"),
        )
    return places


def require_baseline(session: Session, comparison: Comparison, baseline: int) -> None:
    """Make sure that a comparison can be judged by another.

    Raises:
        SettingsError: it cannot, and why.
    """
    if baseline == comparison.id:
        raise SettingsError(
            Message.of("catalogue.baseline.itself"), hint=Message.of("catalogue.hint.healthy_run")
        )
    places = require_finished_baseline(session, baseline)
    known = slice_pairs_of(session, comparison.id)
    if known and not any(pair.golden in places for pair in known):
        raise SettingsError(
            Message.of("catalogue.baseline.other_slices", baseline=baseline),
            hint=Message.of("catalogue.hint.same_slices"),
        )
