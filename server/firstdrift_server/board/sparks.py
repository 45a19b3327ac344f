"""The numbers in the cells of a board: an error, and those of the layers as a line as small as a word."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.board import Profile, profiles
from firstdrift_server.parts.svg import Scale, path_of

MOST = 240
"""Of so many cells numbers are read, those of the first rows; the others do without."""

WIDTH, HEIGHT = 64.0, 18.0


class Spark(Struct, frozen=True):
    """The errors of the layers of a slice as the path of an SVG; their limit lies at `limit_y`."""

    path: str
    limit_y: float | None


class Numbers(Struct, frozen=True):
    """The error of the logits, or last output, of a slice, and a line of those of its layers.

    Attributes:
        metric: which error it is; None where that has no name.
    """

    error: float | None
    spark: Spark | None
    metric: str | None


def numbers_of(session: Session, wanted: Mapping[int, Sequence[int]]) -> dict[int, dict[int, Numbers]]:
    """Give the numbers of slices at positions of comparisons, as far as there is room."""
    found: dict[int, dict[int, Numbers]] = {}
    left = MOST
    for comparison, positions in wanted.items():
        shown = positions[:left]
        left -= len(shown)
        known = profiles(session, comparison, shown) if shown else {}
        found[comparison] = {
            position: Numbers(one.error, spark_of(one), one.metric) for position, one in known.items()
        }
    return found


def spark_of(profile: Profile) -> Spark | None:
    """Draw the errors of layers; None if fewer than two are known."""
    errors = profile.layers
    if sum(error is not None for error in errors) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    scale = Scale.of(errors, [profile.limit], 2.0, HEIGHT - 2.0)
    step = WIDTH / (len(errors) - 1)
    places = (
        None if error is None else (round(at * step, 1), scale.y(error)) for at, error in enumerate(errors)
    )
    return Spark(path_of(places), None if profile.limit is None else scale.y(profile.limit))
