"""What a call of torch.distributed sends to, or receives from, one other rank.

isend(tensor, dst=1)                                one message to rank 1
batch_isend_irecv([P2POp(isend, ..., 1), ...])      a message for each of its arguments
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.operators.properties import BETWEEN_RANKS, message_of

_SENDS: Final = "sends"
_SEVERAL: Final = "several"
_ONE: Final = (_SENDS, "receives")
_PEERS: Final = frozenset({"dst", "src", "group_dst", "group_src", "peer", "1"})
"""What the argument is called that says with whom; or its position."""

_RANK: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


class Message(NamedTuple):
    """A message from one rank to another.

    Attributes:
        operator: "isend", "irecv", "send" or "recv".
        peer: to whom, or from whom.
        key: begins the keys of its arguments, where a call has several; "" if the call is the message.
    """

    operator: str
    peer: int
    key: str

    @property
    def sends(self) -> bool:
        """Whether it goes to the peer."""
        return message_of(self.operator) == _SENDS


def is_communication(type_name: str) -> bool:
    """Tell communication operators from others."""
    return type_name.startswith(BETWEEN_RANKS)


def messages(type_name: str, records: Iterable[TensorRecord]) -> Iterator[Message]:
    """Yield the messages of an operator, by its arguments; none if it is not one to one."""
    operator = type_name.rpartition(".")[2]
    exchanged = message_of(operator)
    if not exchanged:
        return
    given = {record.key: record.scalar for record in records if record.role is Role.INPUT}
    for key, value in given.items():
        around, _, name = key.rpartition(".")
        if value is None or not _RANK.fullmatch(value):
            continue
        if exchanged != _SEVERAL and key in _PEERS:
            yield Message(operator, int(value), "")
            return
        said = given.get(f"{around}.op")
        if exchanged == _SEVERAL and name == "peer" and said and message_of(said) in _ONE:
            yield Message(said, int(value), f"{around}.")
