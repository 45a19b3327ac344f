"""The numbers that the rule sets go by: what they are unless somebody moves them, and within which limits.

    thresholds_from({"factor": "4"})  ─▶  Thresholds(factor=4.0)  ─▶  judge_slice(..., thresholds=...)

A verdict follows from measurements and thresholds, so that moving one reads no tensor again. They are kept
with what was judged by them; what is left at its default is not written down, and follows later versions.
"""

import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple

from msgspec import Struct

from firstdrift.errors import SettingsError
from firstdrift.model.tensor import UNIT_ROUNDOFF

_ROUNDOFF: Final = "roundoff_"


class Thresholds(Struct, frozen=True, omit_defaults=True):
    """What errors are held against; `ABOUT` says of each what it means.

    Those without a prefix are of the rule set `firstdrift`; "roundings" are unit roundoffs of the coarser
    of the dtypes.

    Attributes:
        factor: an output error this many times the input error was made by the node.
        floor: output errors below this many roundings are what a node gathers inside.
        peer_floor: a node that stands out among its peers needs at least an error of so many roundings.
        weak_factor: a node that stands out by this much is no finding, but fits one that another token shows.
        hidden_floor: `floor` of an input that operations made which the dump does not hold: attention cores.
        alone_floor: below it, an output that is all that can be compared tells nothing: bfloat16 gathers as
            much.
        parameter_floor: parameters that differ by more roundings differ; fewer is a change of dtype.
        later_step_parameters: after the first step, parameters carry the rounding of training; below this
            they count as equal.
        gradient_scale: a gradient this much smaller than the largest of the slice has cancelled out.
        token_ratio: a token whose error is this many times the worst before it stands out.
        token_lasting: ... and is a fault if later tokens stay above the worst before it by this factor,
        token_unfollowed: or if it stands out by this factor and no token follows that could tell,
        token_sudden: or if it stands out by this factor by itself.
        drift_roundoffs: logits that are off by more roundings, with no node to name, have drifted,
        drift_least: if they are off by at least this,
        drift_most: and in any dtype if they are off by more than this.
        excess: an error begins at a node only if it is this many times that of the same node in a healthy
            run, where one is given (`reference ratio` of three runs).
        roundoff_float64: unit roundoff that errors in this dtype are held against; likewise the others.
            A float32 model that computes in TF32 rounds to 2^-11.
        msprobe_norm_in: the norms of inputs that differ by less agree; if that of an output
        msprobe_norm_out: differs by more than this then, it is an error.
        msprobe_norm_growth: a norm error this many times the input's is a warning,
        msprobe_norm_alone: as is one above this where the input has none.
        msprobe_share_in: inputs of which a larger share is within 1/1000 agree; an output of which
        msprobe_share_out: a smaller share is, is an error then.
        msprobe_cosine_in: inputs with a larger cosine agree; an output whose cosine is
        msprobe_cosine_drop: further below is a warning then.
        msit_cosine: an output passes above this cosine similarity,
        msit_kl_bfloat16: and logits in bfloat16 below this KL divergence,
        msit_kl: those in any finer dtype below this.
    """

    factor: float = 3.0
    floor: float = 32.0
    peer_floor: float = 8.0
    weak_factor: float = 1.5
    hidden_floor: float = 128.0
    alone_floor: float = 0.25
    parameter_floor: float = 4.0
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
    roundoff_float64: float = UNIT_ROUNDOFF["float64"]
    roundoff_float32: float = UNIT_ROUNDOFF["float32"]
    roundoff_float16: float = UNIT_ROUNDOFF["float16"]
    roundoff_bfloat16: float = UNIT_ROUNDOFF["bfloat16"]
    roundoff_float8_e4m3fn: float = UNIT_ROUNDOFF["float8_e4m3fn"]
    roundoff_float8_e5m2: float = UNIT_ROUNDOFF["float8_e5m2"]
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
        known = [self._roundoff_of(dtype) for dtype in frozenset(dtypes) if dtype in UNIT_ROUNDOFF]
        return max(known, default=self.roundoff_float32)

    def drift(self, roundoff: float) -> float:
        """Return the error of a last output above which rounding does not explain it."""
        return min(self.drift_most, max(self.drift_least, self.drift_roundoffs * roundoff))

    def _roundoff_of(self, dtype: str) -> float:
        name = _ROUNDOFF_OF.get(dtype)
        found: float = UNIT_ROUNDOFF[dtype] if name is None else getattr(self, name)
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
    for dtype in UNIT_ROUNDOFF
    if (name := _ROUNDOFF + _SAME_ROUNDOFF.get(dtype, dtype)) in Thresholds.__struct_fields__
}
"""Which threshold says how a dtype rounds."""

DEFAULTS: Final = Thresholds()


class About(NamedTuple):
    """Of one threshold: what it is, and what it may be.

    Attributes:
        rules: the rule set that goes by it.
        title: what it is called.
        meaning: a sentence without its full stop.
        least: the smallest value that makes sense; likewise most.
        per_dtype: it is an amount of rounding, of which there is one for each dtype.
    """

    rules: str
    title: str
    meaning: str
    least: float = 0.0
    most: float = 1e6
    per_dtype: bool = False

    def refuses(self, value: float) -> bool:
        """Tell whether a value makes no sense."""
        return math.isnan(value) or not self.least <= value <= self.most


def _own(title: str, meaning: str, **limits: float) -> About:
    return About("firstdrift", title, meaning, **limits)  # type: ignore[arg-type]


def _msprobe(title: str, meaning: str, most: float = 1.0) -> About:
    return About("msprobe", title, meaning, 0.0, most)


def _msit(title: str, meaning: str, most: float) -> About:
    return About("msit", title, meaning, 0.0, most)


ABOUT: Final[Mapping[str, About]] = {
    "factor": _own(
        "Amplification", "an output error this many times the input error was made by the node", least=1.0
    ),
    "floor": _own("Floor", "output errors below this many roundings are what a node gathers inside"),
    "peer_floor": _own(
        "Floor among peers", "a node that stands out among its peers needs an error of so many roundings"
    ),
    "weak_factor": _own(
        "Weak sign",
        "a node that stands out among its peers by this factor fits a fault that the next token shows",
        least=1.0,
    ),
    "hidden_floor": _own(
        "Floor of inputs", "the same for an input that operations made which the dump does not hold"
    ),
    "alone_floor": _own(
        "Floor of a single output", "an output that is all there is to compare is bad above this", most=10.0
    ),
    "parameter_floor": _own(
        "Parameters", "parameters that differ by fewer roundings are only of another dtype"
    ),
    "later_step_parameters": _own(
        "Trained parameters",
        "after the first training step, parameters that differ by less count as equal",
        most=10.0,
    ),
    "gradient_scale": _own(
        "Cancelled gradients",
        "a gradient this small beside the largest of the step has cancelled out",
        most=1.0,
    ),
    "token_ratio": _own(
        "Token stands out",
        "a token stands out if its error is this many times the worst before it",
        least=1.0,
    ),
    "token_lasting": _own(
        "Token lasts",
        "a token that stands out is bad if later ones stay above the worst before it by this",
        least=1.0,
    ),
    "token_unfollowed": _own(
        "Last token", "a token that no other follows is bad if it stands out by this", least=1.0
    ),
    "token_sudden": _own(
        "Sudden token", "a token is bad whatever follows if it stands out by this", least=1.0
    ),
    "drift_roundoffs": _own(
        "Drift", "logits that are off by more roundings, with no node to name, have drifted"
    ),
    "drift_least": _own("Least drift", "logits that are off by less have not drifted", most=10.0),
    "drift_most": _own("Most drift", "logits that are off by more have drifted in any dtype", most=10.0),
    "excess": _own(
        "Excess", "an error begins at a node only if it is this many times that of the healthy run", least=1.0
    ),
    **{
        f"{_ROUNDOFF}{dtype}": _own(
            dtype, f"the relative error of one rounding in {dtype}, which errors are held against", most=1.0
        )
        for dtype in ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
    },
    "msprobe_norm_in": _msprobe("Norm of inputs", "inputs agree if their norms differ by less"),
    "msprobe_norm_out": _msprobe(
        "Norm of outputs", "an output whose norm differs by more, from inputs that agree, is an error", 1e6
    ),
    "msprobe_norm_growth": _msprobe(
        "Growth of the norm error",
        "an output whose norm error is this many times the input's is a warning",
        1e6,
    ),
    "msprobe_norm_alone": _msprobe(
        "Norm error from nothing",
        "an output whose norm differs by more, from equal inputs, is a warning",
        1e6,
    ),
    "msprobe_share_in": _msprobe(
        "Inputs within 1/1000", "inputs agree if a larger share of their elements is within 1/1000"
    ),
    "msprobe_share_out": _msprobe(
        "Outputs within 1/1000", "an output of which a smaller share is, from inputs that agree, is an error"
    ),
    "msprobe_cosine_in": _msprobe("Cosine of inputs", "inputs agree if their cosine similarity is larger"),
    "msprobe_cosine_drop": _msprobe(
        "Drop of the cosine",
        "an output whose cosine is lower than that of agreeing inputs by more is a warning",
        2.0,
    ),
    "msit_cosine": _msit("Cosine", "an output passes if its cosine similarity is above this", 1.0),
    "msit_kl_bfloat16": _msit(
        "KL in bfloat16", "logits in bfloat16 pass if their KL divergence is below this", 1e6
    ),
    "msit_kl": _msit(
        "KL in finer dtypes", "logits in any finer dtype pass if their KL divergence is below this", 1e6
    ),
}
"""Of each threshold, in the order in which they are shown."""


def thresholds_from(given: Mapping[str, str | float], base: Thresholds = DEFAULTS) -> Thresholds:
    """Read thresholds by name, as addresses, forms and the command line give them; others are as in `base`.

    Raises:
        SettingsError: there is no threshold of that name, or its value is no number that makes sense.
    """
    values = {name: getattr(base, name) for name in Thresholds.__struct_fields__}
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
            raise SettingsError(f"{word!r} is no threshold", hint="Say NAME=VALUE, such as factor=4")
        given[name.strip()] = value.strip()
    return thresholds_from(given)


def _value(name: str, text: str | float) -> float:
    if name not in ABOUT:
        near = get_close_matches(name, ABOUT, n=3)
        names = " or ".join(near) if near else ", ".join(ABOUT)
        raise SettingsError(
            f"there is no threshold {name!r}", hint=f"Perhaps {names}" if near else f"There are {names}"
        )
    about = ABOUT[name]
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if about.refuses(value):
        raise SettingsError(
            f"the threshold {name} cannot be {text}",
            hint=f"Give a number from {about.least:g} to {about.most:g}",
        )
    return value
