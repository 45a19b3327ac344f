"""Whether two tensors, or two Python scalars, are equal, where no more than that can be known."""

import re

from firstdrift.metrics.measurement import Measurement, MeasurementKind, incomparable
from firstdrift.model.tensor import TensorRecord
from firstdrift.wording.message import Message, joined

_NUMBERS = frozenset({"bool", "int", "float"})


def measure_digests(golden: TensorRecord, target: TensorRecord) -> Measurement:
    """Compare the checksums of two tensors: equal or not, nothing in between."""
    if golden.dtype != target.dtype:
        return incomparable(Message.of("metrics.digests_of_dtypes", golden=golden.dtype, target=target.dtype))
    if _algorithm(golden.digest) != _algorithm(target.digest):
        return incomparable(
            Message.of("metrics.digests_of_algorithms", golden=golden.digest, target=target.digest)
        )
    return Measurement(MeasurementKind.DIGEST, equal=golden.digest == target.digest)


def measure_scalars(golden: TensorRecord, target: TensorRecord) -> Measurement:
    """Compare two Python arguments: numbers as numbers, everything else as text.

    NaN equals NaN and 1 equals 1.0 (the remark names the types). Devices are expected to differ and
    count as equal.
    """
    equal = _same_scalar(golden, target)
    remarks = []
    if golden.scalar != target.scalar:
        remarks.append(Message.of("metrics.against", golden=golden.scalar, target=target.scalar))
    if golden.dtype != target.dtype:
        remarks.append(Message.of("metrics.types_differ", golden=golden.dtype, target=target.dtype))
    return Measurement(MeasurementKind.SCALAR, joined(*remarks) if remarks else None, equal=equal)


def is_xor(record: TensorRecord) -> bool:
    """Tell whether a checksum is an XOR of words, which does not see in what order they are."""
    return bool(record.digest and record.digest.startswith("0x"))


def _algorithm(digest: str | None) -> int:
    """Tell checksums of different algorithms apart, by their form: 0 for what has none of these."""
    return len(digest) if digest and re.fullmatch("0x[0-9a-f]{16}|[0-9a-f]{8}|[0-9a-f]{32}", digest) else 0


def _same_scalar(golden: TensorRecord, target: TensorRecord) -> bool:
    if golden.scalar == target.scalar or golden.dtype == target.dtype == "torch.device":
        return True
    left, right = _number(golden), _number(target)
    if left is None or right is None:
        return False
    return left == right or (left != left and right != right)  # noqa: PLR0124 (only NaN differs from itself)


def _number(record: TensorRecord) -> int | float | None:
    """Return a scalar as a number; integers exactly, however large."""
    if record.dtype not in _NUMBERS or record.scalar is None:
        return None
    if record.scalar in {"True", "False"}:
        return int(record.scalar == "True")
    for parse in (int, float):
        try:
            return parse(record.scalar)
        except ValueError:
            continue
    return None
