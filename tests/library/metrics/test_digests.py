"""Equal or not: digests of tensors, and Python scalars."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstdrift.metrics.digests import measure_digests, measure_scalars
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.model.tensor import Role, TensorRecord


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
        (digest("f5881353"), digest("0xf2a81b0dfe453c49"), "formed in different ways"),
        (digest("f5881353"), digest("f5881353" * 4), "formed in different ways"),
        (digest("f5881353"), digest("f5881354", "bfloat16"), "those of float32 and bfloat16 always differ"),
    ],
)
def test_digests_that_cannot_be_compared_are_said_to_be_so(
    golden: TensorRecord, target: TensorRecord, reason: str
) -> None:
    found = measure_digests(golden, target)
    assert (found.kind, found.equal) == (MeasurementKind.INCOMPARABLE, None)
    assert reason in found.reason


@pytest.mark.parametrize(
    ("golden", "target", "equal", "remark"),
    [
        (("1", "int"), ("1", "int"), True, ""),
        (("1", "int"), ("2", "int"), False, "1 against 2"),
        (("1", "int"), ("1.0", "float"), True, "1 against 1.0; types differ: int and float"),
        (("1e-05", "float"), ("0.00001", "float"), True, "1e-05 against 0.00001"),
        (("nan", "float"), ("nan", "float"), True, ""),
        (("nan", "float"), ("NaN", "float"), True, "nan against NaN"),
        (("nan", "float"), ("1.0", "float"), False, "nan against 1.0"),
        (
            ("1" + "0" * 400, "int"),
            ("nan", "float"),
            False,
            f"1{'0' * 400} against nan; types differ: int and float",
        ),
        (("Infinity", "float"), ("inf", "float"), True, "Infinity against inf"),
        (("Infinity", "float"), ("-Infinity", "float"), False, "Infinity against -Infinity"),
        (("True", "bool"), ("False", "bool"), False, "True against False"),
        (("True", "bool"), ("1", "int"), True, "True against 1; types differ: bool and int"),
        ((str(2**60), "int"), (str(2**60 + 1), "int"), False, f"{2**60} against {2**60 + 1}"),
        (("mean", "str"), ("sum", "str"), False, "mean against sum"),
        (("1", "str"), ("1.0", "str"), False, "1 against 1.0"),
        (("cpu:None", "torch.device"), ("npu:0", "torch.device"), True, "cpu:None against npu:0"),
        (
            ("torch.bfloat16", "torch.dtype"),
            ("torch.float32", "torch.dtype"),
            False,
            "torch.bfloat16 against torch.float32",
        ),
    ],
)
def test_scalars(golden: tuple[str, str], target: tuple[str, str], equal: bool, remark: str) -> None:
    found = measure_scalars(scalar(*golden), scalar(*target))
    assert (found.kind, found.equal, found.reason) == (MeasurementKind.SCALAR, equal, remark)


@given(st.text(), st.text(), st.sampled_from(["int", "float", "bool", "str"]))
def test_any_text_can_be_a_scalar(golden: str, target: str, dtype: str) -> None:
    assert measure_scalars(scalar(golden, dtype), scalar(golden, dtype)).equal
    assert measure_scalars(scalar(golden, dtype), scalar(target, dtype)).equal in {True, False}
