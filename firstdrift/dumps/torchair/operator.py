"""An operator of a TorchAir dump, whichever form of the graph it is from."""

import re
from collections.abc import Sequence

from msgspec import Struct

from firstdrift.dumps.storage.listed_files import not_part_of_a_dump
from firstdrift.model.tensor import TensorRecord
from firstdrift.wording.message import Message

Notes = list[tuple[str, Message]]
"""Files of which something is odd or damaged, and what; "" for the folder itself."""

_NUMBERED = re.compile(r"(?P<stem>.*[^0-9_])_(?P<number>0|[1-9][0-9]{0,8})", re.ASCII | re.DOTALL)


class Operator(Struct, frozen=True):
    """One execution of an operator.

    Attributes:
        name: as the dump names it; unique in its graph.
        path: its name without the number at its end ("Add_1" is a call of "Add"), or its operator.
        call: that number.
        type_name: which operator it is: "aten.mm", "MatMulV2".
        time: when it ran, as the dump counts.
        tensors: inputs, then outputs.
        is_whole: whether its name stands for it alone; False for a further file of the same name.
    """

    name: str
    path: str
    call: int
    type_name: str
    time: int
    tensors: tuple[TensorRecord, ...]
    is_whole: bool = True


class Operators(Struct, frozen=True):
    """What lies in the folder of one execution of a graph.

    Attributes:
        operators: in the order of their times.
        notes: what is odd or damaged.
    """

    operators: Sequence[Operator]
    notes: Notes


def notes_of_unknown(names: Sequence[str]) -> Notes:
    """Say that entries of the folder were passed over, if any were."""
    return [("", not_part_of_a_dump(names))] if names else []


def split_number(name: str) -> tuple[str, int]:
    """Take the number off the end of a name: "Add_1" is ("Add", 1), "MatMul" is ("MatMul", 0)."""
    found = _NUMBERED.fullmatch(name)
    return (found["stem"], int(found["number"])) if found else (name, 0)
