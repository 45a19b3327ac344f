import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from firstdrift.catalogue.codec import from_text, to_text
from firstdrift.metrics.measurement import Measurement, MeasurementKind, SideSummary
from firstdrift.model.slice import Coordinates
from firstdrift.model.tensor import DataLocation, Role, Statistics, TensorRecord
from firstdrift.verdict.judgement import Finding, Findings, NodeClass, Overflow, Verdict
from firstdrift.wording.message import Message, verbatim

any_float = st.none() | st.floats()
any_text = st.text(st.characters(codec=None, categories=None))  # lone surrogates and NUL included


def said(record: object) -> str:
    """Compare by what is printed, for NaN differs from itself."""
    return repr(record)


@given(st.builds(Statistics, any_float, any_float, any_float, any_float))
def test_every_float_comes_back_as_it_was(statistics: Statistics) -> None:
    assert said(from_text(Statistics, to_text(statistics))) == said(statistics)


@given(any_text, any_text)
def test_every_name_comes_back_as_it_was(key: str, file: str) -> None:
    record = TensorRecord(Role.INPUT, key, "float32", (2, 3), location=DataLocation(Path(file), "pt", key))
    assert from_text(TensorRecord, to_text(record)) == record


def test_the_text_is_strict_json_with_named_non_finite_numbers() -> None:
    text = to_text(Statistics(math.inf, -math.inf, math.nan, 1.5))
    strict = json.loads(text, parse_constant=pytest.fail)
    assert strict == {"maximum": "Infinity", "minimum": "-Infinity", "mean": "NaN", "norm": 1.5}


def test_a_name_that_reads_like_a_number_stays_a_name() -> None:
    overflow = Overflow(Coordinates(0), "NaN", "high", verbatim("Infinity"))
    assert from_text(Overflow, to_text(overflow)) == overflow


def test_records_within_records_come_back() -> None:
    metrics = {"cosine_similarity": 0.5, "kl_divergence": math.inf, "top": 7, "sqnr": None}
    finding = Finding(
        coordinates=Coordinates(0, None, 3),
        golden="golden",
        target="target",
        module=None,
        tensor="output.0",
        node_class=NodeClass.SOURCE,
        verdict=Verdict.ERROR,
        reasons=(Message.of("reason.output", error=0.5),),
        metrics=metrics,
        row=4,
    )
    findings = Findings(Message.of("summary.no_slices"), first_bad_node=finding, suspects=(finding, finding))
    assert from_text(Findings, to_text(findings)) == findings


def test_what_is_none_by_default_takes_no_room() -> None:
    measurement = Measurement(MeasurementKind.DIGEST, equal=True)
    assert json.loads(to_text(measurement)) == {"kind": "digest", "equal": True}
    assert from_text(Measurement, '{"kind": "digest", "reason": "", "equal": true}') == measurement


def test_a_field_added_with_a_default_can_be_read_from_older_text() -> None:
    class Newer(Struct, frozen=True):
        kept: int
        added: tuple[str, ...] = ("default",)

    assert from_text(Newer, '{"kept": 1}') == Newer(1)


def test_none_is_kept_apart_from_nothing() -> None:
    summary = SideSummary(0, None, None, None, None)
    assert from_text(SideSummary, to_text(summary)) == summary
