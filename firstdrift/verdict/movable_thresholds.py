"""The numbers that the rule sets go by: what they are unless somebody moves them, and within which limits.

    thresholds_from({"factor": "4"})  ─▶  Thresholds(factor=4.0)  ─▶  judge_after(..., limits=...)

A verdict follows from measurements and thresholds, so that moving one reads no tensor again. They are kept
with what was judged by them; what is left at its default is not written down, and follows later versions.
Numbers that nobody moves, such as those of ties, are in `fixed_thresholds.py`.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from firstdrift.errors import SettingsError
from firstdrift.groups import fields_of, known
from firstdrift.model.tensor import ROUNDING
from firstdrift.wording.message import Message

_ROUNDOFF: Final = "roundoff_"


class Thresholds(Struct, frozen=True, omit_defaults=True):
    """What errors are held against; `ABOUT` says of each what it means.

    Those without a prefix are of the rule set `firstdrift`; "roundings" are `ROUNDING` of the coarser of the
    dtypes.
    """

    factor: float = 3.0
    floor: float = 32.0
    bounded_floor: float = 8.0
    peer_floor: float = 8.0
    weak_factor: float = 1.5
    hidden_floor: float = 128.0
    alone_floor: float = 0.25
    parameter_floor: float = 2.0
    later_step_parameters: float = 1e-3
    gradient_scale: float = 0.01
    token_ratio: float = 2.5
    token_lasting: float = 2.0
    token_unfollowed: float = 4.0
    token_sudden: float = 6.0
    drift_roundoffs: float = 128.0
    drift_least: float = 1e-3
    drift_most: float = 0.5
    excess: float = 2.0
    roundoff_float64: float = ROUNDING["float64"]
    roundoff_float32: float = ROUNDING["float32"]
    roundoff_float16: float = ROUNDING["float16"]
    roundoff_bfloat16: float = ROUNDING["bfloat16"]
    roundoff_float8_e4m3fn: float = ROUNDING["float8_e4m3fn"]
    roundoff_float8_e5m2: float = ROUNDING["float8_e5m2"]
    msprobe_norm_in: float = 0.1
    msprobe_norm_out: float = 0.5
    msprobe_norm_growth: float = 10.0
    msprobe_norm_alone: float = 0.1
    msprobe_share_in: float = 0.9
    msprobe_share_out: float = 0.1
    msprobe_cosine_in: float = 0.9
    msprobe_cosine_drop: float = 0.1
    msit_cosine: float = 0.999
    msit_kl_bfloat16: float = 0.005
    msit_kl: float = 0.0001

    def roundoff(self, *dtypes: str) -> float:
        """Return the coarsest unit roundoff among dtypes; float32's where none is a floating dtype."""
        known = [self._roundoff_of(dtype) for dtype in dtypes if dtype in ROUNDING]
        return max(known, default=self.roundoff_float32)

    def dtype_of(self, roundoff: float) -> str:
        """Name the dtype whose rounding is nearest to a size."""
        known = [about.dtype for about in ABOUT.values() if about.dtype is not None]
        return min(known, key=lambda dtype: abs(self._roundoff_of(dtype) - roundoff))

    @property
    def roundoffs(self) -> frozenset[float]:
        """The unit roundoffs of the dtypes that have one of their own."""
        return frozenset(map(self._roundoff_of, known(about.dtype for about in ABOUT.values())))

    def drift(self, roundoff: float) -> float:
        """Return the error of a last output above which rounding does not explain it."""
        return min(self.drift_most, max(self.drift_least, self.drift_roundoffs * roundoff))

    def hides_faults(self, roundoff: float) -> bool:
        """Tell whether rounding explains an output that has nothing to do with the other one."""
        return self.floor * roundoff >= 1.0

    def _roundoff_of(self, dtype: str) -> float:
        name = _ROUNDOFF_OF.get(dtype)
        found: float = ROUNDING[dtype] if name is None else getattr(self, name)
        return found

    def moved(self) -> dict[str, float]:
        """Return those that are not at their defaults."""
        return {
            name: value
            for name in Thresholds.__struct_fields__
            if (value := getattr(self, name)) != getattr(DEFAULTS, name)
        }


_SAME_ROUNDOFF: Final = {"complex64": "float32", "complex128": "float64"}
_ROUNDOFF_OF: Final = {
    dtype: name
    for dtype in ROUNDING
    if (name := _ROUNDOFF + _SAME_ROUNDOFF.get(dtype, dtype)) in Thresholds.__struct_fields__
}
"""Which threshold says how a dtype rounds."""

DEFAULTS: Final = Thresholds()


class About(NamedTuple):
    """What one threshold is, and what it may be.

    Attributes:
        name: as in `Thresholds`.
        rules: the rule set that goes by it.
        least: the smallest value that makes sense; likewise most.
    """

    name: str
    rules: str
    least: float = 0.0
    most: float = 1e6

    @property
    def dtype(self) -> str | None:
        """The dtype of which it is the unit roundoff; None of all others."""
        return self.name.removeprefix(_ROUNDOFF) if self.name.startswith(_ROUNDOFF) else None

    @property
    def title(self) -> Message:
        """What it is called."""
        return self._message("threshold")

    @property
    def meaning(self) -> Message:
        """What it does, as a clause."""
        return self._message("threshold_meaning")

    def refuses(self, value: float) -> bool:
        """Tell whether a value makes no sense."""
        return math.isnan(value) or not self.least <= value <= self.most

    def _message(self, room: str) -> Message:
        if self.dtype:
            return Message.of(f"{room}.roundoff", dtype=self.dtype)
        return Message.of(f"{room}.{self.name}")


_TABLE: Final = (
    About("factor", "firstdrift", least=1.0),
    About("floor", "firstdrift"),
    About("bounded_floor", "firstdrift"),
    About("peer_floor", "firstdrift"),
    About("weak_factor", "firstdrift", least=1.0),
    About("hidden_floor", "firstdrift"),
    About("alone_floor", "firstdrift", most=10.0),
    About("parameter_floor", "firstdrift"),
    About("later_step_parameters", "firstdrift", most=10.0),
    About("gradient_scale", "firstdrift", most=1.0),
    About("token_ratio", "firstdrift", least=1.0),
    About("token_lasting", "firstdrift", least=1.0),
    About("token_unfollowed", "firstdrift", least=1.0),
    About("token_sudden", "firstdrift", least=1.0),
    About("drift_roundoffs", "firstdrift"),
    About("drift_least", "firstdrift", most=10.0),
    About("drift_most", "firstdrift", most=10.0),
    About("excess", "firstdrift", least=1.0),
    About("roundoff_float64", "firstdrift", most=1.0),
    About("roundoff_float32", "firstdrift", most=1.0),
    About("roundoff_float16", "firstdrift", most=1.0),
    About("roundoff_bfloat16", "firstdrift", most=1.0),
    About("roundoff_float8_e4m3fn", "firstdrift", most=1.0),
    About("roundoff_float8_e5m2", "firstdrift", most=1.0),
    About("msprobe_norm_in", "msprobe", most=1.0),
    About("msprobe_norm_out", "msprobe"),
    About("msprobe_norm_growth", "msprobe"),
    About("msprobe_norm_alone", "msprobe"),
    About("msprobe_share_in", "msprobe", most=1.0),
    About("msprobe_share_out", "msprobe", most=1.0),
    About("msprobe_cosine_in", "msprobe", most=1.0),
    About("msprobe_cosine_drop", "msprobe", most=2.0),
    About("msit_cosine", "msit", most=1.0),
    About("msit_kl_bfloat16", "msit"),
    About("msit_kl", "msit"),
)
ABOUT: Final[Mapping[str, About]] = {about.name: about for about in _TABLE}
"""Each threshold by name, in the order in which they are shown; what they mean is said in wording."""


def thresholds_from(given: Mapping[str, str | float], base: Thresholds = DEFAULTS) -> Thresholds:
    """Read thresholds by name, as addresses, forms and the command line give them; others are as in `base`.

    Raises:
        SettingsError: there is no threshold of that name, or its value is no number that makes sense.
    """
    values = fields_of(base, Thresholds.__struct_fields__)
    return Thresholds(**(values | {name: _value(name, text) for name, text in given.items()}))


def thresholds_of_words(words: Iterable[str]) -> Thresholds:
    """Read "NAME=VALUE" words.

    Raises:
        SettingsError: one is not of that form, or as `thresholds_from`.
    """
    given: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign:
            raise SettingsError(
                Message.of("thresholds.no_word", word=word),
                hint=Message.of("thresholds.hint.word"),
            )
        given[name.strip()] = value.strip()
    return thresholds_from(given)


def _value(name: str, text: str | float) -> float:
    if name not in ABOUT:
        from difflib import get_close_matches

        near = tuple(get_close_matches(name, ABOUT, n=3))
        hint = Message.of("thresholds.hint.all", names=tuple(ABOUT))
        if near:
            hint = Message.of("thresholds.hint.similar", names=near, all=tuple(ABOUT))
        raise SettingsError(Message.of("thresholds.unknown", name=name), hint=hint)
    about = ABOUT[name]
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if about.refuses(value):
        raise SettingsError(
            Message.of("thresholds.refused", name=name, value=str(text)),
            hint=Message.of("thresholds.hint.limits", least=about.least, most=about.most),
        )
    return value
