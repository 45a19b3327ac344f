"""The metrics by the names that people know, and what each one means."""

from dataclasses import dataclass

from firstdrift.model.tensor import UNIT_ROUNDOFF
from firstdrift.verdict.thresholds import DEFAULTS, Thresholds


@dataclass(frozen=True, slots=True)
class Metric:
    """How a metric is shown.

    Attributes:
        label: its name.
        meaning: what it is, in a clause.
        logarithmic: its values span many decades, so charts use a logarithmic axis.
        is_share: it lies between 0 and 1 and is written as a percentage.
    """

    label: str
    meaning: str
    logarithmic: bool = False
    is_share: bool = False


METRICS: dict[str, Metric] = {
    "relative_l2": Metric("Relative L2", "|target - golden| / |golden|, L2 norms", logarithmic=True),
    "worst_row_relative_l2": Metric(
        "Worst row", "the largest relative L2 of a row of the last dimension", logarithmic=True
    ),
    "cosine_similarity": Metric("Cosine", "cosine of the angle between the two tensors"),
    "kl_divergence": Metric(
        "KL divergence", "KL(softmax golden || softmax target), mean over positions", logarithmic=True
    ),
    "worst_kl_divergence": Metric("Worst KL", "the largest KL divergence of a position", logarithmic=True),
    "top1_agreement": Metric(
        "Top-1 agreement", "positions at which both choose the same token", is_share=True
    ),
    "max_absolute_error": Metric("Max abs error", "largest |target - golden|", logarithmic=True),
    "mean_absolute_error": Metric("Mean abs error", "mean |target - golden|", logarithmic=True),
    "max_relative_error": Metric("Max rel error", "largest |target - golden| / |golden|", logarithmic=True),
    "mean_relative_error": Metric("Mean rel error", "mean |target - golden| / |golden|", logarithmic=True),
    "share_within_1e3": Metric("Within 1/1000", "elements with a relative error below 0.001", is_share=True),
    "share_within_5e3": Metric("Within 5/1000", "elements with a relative error below 0.005", is_share=True),
    "share_equal": Metric("Equal elements", "elements that are equal", is_share=True),
    "share_mismatched": Metric("Mismatched", "elements with different values", is_share=True),
    "sqnr": Metric("SQNR", "signal to noise, in dB"),
    "mismatched_nonfinite": Metric(
        "Non-finite mismatches", "places where NaN or an infinity meets something else"
    ),
    "size": Metric("Elements", "number of element pairs"),
    "error_bound": Metric(
        "Relative L2 at least", "a lower bound, so far as recorded statistics tell", logarithmic=True
    ),
    "relative_maximum": Metric("Max differs by", "relative difference of the maxima", logarithmic=True),
    "relative_minimum": Metric("Min differs by", "relative difference of the minima", logarithmic=True),
    "relative_mean": Metric("Mean differs by", "relative difference of the means", logarithmic=True),
    "relative_norm": Metric("Norm differs by", "relative difference of the L2 norms", logarithmic=True),
    "equal": Metric("Equal", "1 if bitwise equal, by data, digest or value"),
}
CHARTED = (
    "relative_l2",
    "kl_divergence",
    "cosine_similarity",
    "max_absolute_error",
    "top1_agreement",
    "worst_row_relative_l2",
    "error_bound",
    "relative_norm",
    "equal",
)
"""Metrics offered for the tokens, the most telling first."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A line in a chart: where it is, and what it stands for."""

    value: float
    meaning: str


def threshold(metric: str, roundoff: float, limits: Thresholds = DEFAULTS) -> Threshold | None:
    """Return the limit that a metric of logits is held against, if there is one."""
    if metric in ("relative_l2", "worst_row_relative_l2", "error_bound"):
        text = f"{limits.floor:g} x rounding: below it, rounding explains the error"
        return Threshold(limits.floor * roundoff, text)
    if metric == "cosine_similarity":
        return Threshold(limits.msit_cosine, f"msit: above {limits.msit_cosine} passes")
    if metric == "kl_divergence":
        limit = limits.msit_kl_bfloat16 if roundoff == UNIT_ROUNDOFF["bfloat16"] else limits.msit_kl
        return Threshold(limit, f"msit: below {limit} passes")
    return None
