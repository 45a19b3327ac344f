"""A number that stands in a log, as the only value of a tensor: the name of the tensor is the number."""

import re
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from firstdrift.dumps.containers.contents import Contents, DamagedError, quoted
from firstdrift.dumps.containers.values import read_only
from firstdrift.wording.message import Message

_NUMBER: Final = re.compile(r"-?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?(?:e[+-]?[0-9]{1,4})?|inf|nan)", re.ASCII)


def load(_file: Path, _contents: Contents, entry: str) -> npt.NDArray[Any]:
    """Return the number."""
    if _NUMBER.fullmatch(entry) is None:
        raise DamagedError(Message.of("dumps.file.no_such_tensor", tensor=quoted(entry)))
    return read_only(np.array([float(entry)]))
