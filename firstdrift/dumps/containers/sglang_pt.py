"""Read a file of SGLang's dumper: a tensor of `torch.save`, whose name says what it is of the whole."""

from pathlib import Path
from typing import Any

import numpy.typing as npt

from firstdrift.dumps.containers import pt
from firstdrift.dumps.containers.contents import Contents, DamagedError, quoted
from firstdrift.dumps.sglang.dims import read_portion
from firstdrift.wording.message import Message


def load(file: Path, contents: Contents, entry: str) -> npt.NDArray[Any]:
    """Load one tensor of a file."""
    portion = read_portion(entry)
    if portion is None:
        raise DamagedError(Message.of("dumps.file.no_such_tensor", tensor=quoted(entry)))
    return pt.load(file, contents, portion.entry)
