"""Equal or not: digests of tensors, and Python scalars."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstdrift.metrics.digests import measure_digests, measure_scalars
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.wording.message import Message, joined


def digest(value: str, dtype: str = "float32") -> TensorRecord:
    return TensorRecord(Role.OUTPUT, "0", dtype, (2, 3), digest=value)


def scalar(value: str, dtype: str) -> TensorRecord:
    return TensorRecord(Role.INPUT, "0", dtype, (), scalar=value)


@pytest.mark.parametrize(
    ("golden", "target", "equal"),
    [
        ("f5881353", "f5881353", True),
        ("f5881353", "f5881354", False),
        ("0xf2a81b0dfe453c49", "0xf2a81b0dfe453c48", False),
        ("3.25", "2.5", False),
        ("3.25", "3.25", True),
    ],
)
def test_digests_are_equal_or_not(golden: str, target: str, equal: bool) -> None:
    found = measure_digests(digest(golden), digest(target))
    assert (found.kind, found.equal) == (MeasurementKind.DIGEST, equal)


@pytest.mark.parametrize(
    ("golden", "target", "reason"),
    [
        (digest("f5881353"), digest("0xf2a81b0dfe453c49"), "metrics.digests_of_algorithms"),
        (digest("f5881353"), digest("f5881353" * 4), "metrics.digests_of_algorithms"),
        (digest("f5881353"), digest("f5881354", "bfloat16"), "metrics.digests_of_dtypes"),
    ],
)
def test_digests_that_cannot_be_compared_are_said_to_be_so(
    golden: TensorRecord, target: TensorRecord, reason: str
) -> None:
    found = measure_digests(golden, target)
    assert (found.kind, found.equal) == (MeasurementKind.INCOMPARABLE, None)
    assert found.reason is not None
    assert found.reason.id == reason


def against(golden: str, target: str) -> Message:
    return Message.of("metrics.against", golden=golden, target=target)


def types(golden: str, target: str) -> Message:
    return Message.of("metrics.types_differ", golden=golden, target=target)


@pytest.mark.parametrize(
    ("golden", "target", "equal", "remark"),
    [
        (("1", "int"), ("1", "int"), True, None),
        (("1", "int"), ("2", "int"), False, against("1", "2")),
        (("1", "int"), ("1.0", "float"), True, joined(against("1", "1.0"), types("int", "float"))),
        (("1e-05", "float"), ("0.00001", "float"), True, against("1e-05", "0.00001")),
        (("nan", "float"), ("nan", "float"), True, None),
        (("nan", "float"), ("NaN", "float"), True, against("nan", "NaN")),
        (("nan", "float"), ("1.0", "float"), False, against("nan", "1.0")),
        (
            ("1" + "0" * 400, "int"),
            ("nan", "float"),
            False,
            joined(against(f"1{'0' * 400}", "nan"), types("int", "float")),
        ),
        (("Infinity", "float"), ("inf", "float"), True, against("Infinity", "inf")),
        (("Infinity", "float"), ("-Infinity", "float"), False, against("Infinity", "-Infinity")),
        (("True", "bool"), ("False", "bool"), False, against("True", "False")),
        (("True", "bool"), ("1", "int"), True, joined(against("True", "1"), types("bool", "int"))),
        ((str(2**60), "int"), (str(2**60 + 1), "int"), False, against(f"{2**60}", f"{2**60 + 1}")),
        (("mean", "str"), ("sum", "str"), False, against("mean", "sum")),
        (("1", "str"), ("1.0", "str"), False, against("1", "1.0")),
        (("cpu:None", "torch.device"), ("npu:0", "torch.device"), True, against("cpu:None", "npu:0")),
        (
            ("torch.bfloat16", "torch.dtype"),
            ("torch.float32", "torch.dtype"),
            False,
            against("torch.bfloat16", "torch.float32"),
        ),
    ],
)
def test_scalars(
    golden: tuple[str, str], target: tuple[str, str], equal: bool, remark: Message | None
) -> None:
    found = measure_scalars(scalar(*golden), scalar(*target))
    assert (found.kind, found.equal, found.reason) == (MeasurementKind.SCALAR, equal, remark)


@given(st.text(), st.text(), st.sampled_from(["int", "float", "bool", "str"]))
def test_any_text_can_be_a_scalar(golden: str, target: str, dtype: str) -> None:
    assert measure_scalars(scalar(golden, dtype), scalar(golden, dtype)).equal
    assert measure_scalars(scalar(golden, dtype), scalar(target, dtype)).equal in {True, False}
