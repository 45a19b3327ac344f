"""The element types that can be read, by the name that torch, numpy and ml_dtypes share."""

import ml_dtypes
import numpy as np

_NUMPY_NAMES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_ML_NAMES = (
    *("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    "float8_e8m0fnu",
)

DTYPES: dict[str, np.dtype[np.generic]] = {
    **{name: np.dtype(name) for name in _NUMPY_NAMES},
    **{name: np.dtype(getattr(ml_dtypes, name)) for name in _ML_NAMES},
}
