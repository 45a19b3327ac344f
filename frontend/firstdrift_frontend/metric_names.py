"""The metrics by the names that people know, and what each one means."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from firstdrift.metrics.measurement import RELATIVE_ERRORS
from firstdrift.wording.message import Message
from firstdrift_frontend import numbers


@dataclass(frozen=True, slots=True)
class Metric:
    """How a metric is shown.

    Attributes:
        label: its name.
        meaning: what it is, in a clause.
        logarithmic: its values span many decades, so charts use a logarithmic axis.
        is_share: it lies between 0 and 1 and is written as a percentage.
        is_error: it is a relative error, of any size, and is written as a percentage.
    """

    label: Message
    meaning: Message
    logarithmic: bool = False
    is_share: bool = False
    is_error: bool = False

    @classmethod
    def of(cls, name: str, *, logarithmic: bool = False, is_share: bool = False) -> Self:
        """Describe a metric whose words are in `wording/*/words.toml`."""
        label, meaning = Message.of(f"metric.{name}"), Message.of(f"metric_meaning.{name}")
        is_error = name in RELATIVE_ERRORS
        return cls(label, meaning, logarithmic or is_error, is_share, is_error)


METRICS: Mapping[str, Metric] = {
    "relative_l2": Metric.of("relative_l2"),
    "worst_row_relative_l2": Metric.of("worst_row_relative_l2"),
    "cosine_similarity": Metric.of("cosine_similarity"),
    "kl_divergence": Metric.of("kl_divergence", logarithmic=True),
    "worst_kl_divergence": Metric.of("worst_kl_divergence", logarithmic=True),
    "top1_agreement": Metric.of("top1_agreement", is_share=True),
    "max_absolute_error": Metric.of("max_absolute_error", logarithmic=True),
    "mean_absolute_error": Metric.of("mean_absolute_error", logarithmic=True),
    "max_relative_error": Metric.of("max_relative_error"),
    "mean_relative_error": Metric.of("mean_relative_error"),
    "share_within_1e3": Metric.of("share_within_1e3", is_share=True),
    "share_within_5e3": Metric.of("share_within_5e3", is_share=True),
    "share_equal": Metric.of("share_equal", is_share=True),
    "share_mismatched": Metric.of("share_mismatched", is_share=True),
    "sqnr": Metric.of("sqnr"),
    "mismatched_nonfinite": Metric.of("mismatched_nonfinite"),
    "size": Metric.of("size"),
    "error_bound": Metric.of("error_bound"),
    "relative_maximum": Metric.of("relative_maximum"),
    "relative_minimum": Metric.of("relative_minimum"),
    "relative_mean": Metric.of("relative_mean"),
    "relative_norm": Metric.of("relative_norm"),
    "equal": Metric.of("equal"),
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


def write(value: float | None, name: str | None) -> str:
    """Write a metric as it is read; by its name, if it has one that is known."""
    metric = METRICS.get(name or "")
    if metric is not None and metric.is_share:
        return numbers.share(value)
    return numbers.error(value) if metric is not None and metric.is_error else numbers.short(value)
