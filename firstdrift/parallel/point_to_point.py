"""What a call of torch.distributed sends to, or receives from, one other rank.

isend(tensor, dst=1)                                one message to rank 1
batch_isend_irecv([P2POp(isend, ..., 1), ...])      a message for each of its arguments
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from firstdrift.dumps.nodes import of_role
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.operators.properties import BETWEEN_RANKS, last_part, message_of

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
    operator = last_part(type_name)
    exchanged = message_of(operator)
    if not exchanged:
        return
    given = {record.key: record.scalar or "" for record in of_role(records, Role.INPUT)}
    ranks = {key: int(value) for key, value in given.items() if _RANK.fullmatch(value)}
    if exchanged == _SEVERAL:
        yield from _messages_of_batch(given, ranks)
    elif peers := [rank for key, rank in ranks.items() if key in _PEERS]:
        yield Message(operator, peers[0], "")


def _messages_of_batch(given: Mapping[str, str], ranks: Mapping[str, int]) -> Iterator[Message]:
    for key, rank in ranks.items():
        around, _, name = key.rpartition(".")
        operator = given.get(f"{around}.op", "")
        if name == "peer" and message_of(operator) in _ONE:
            yield Message(operator, rank, f"{around}.")
