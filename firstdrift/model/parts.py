"""Several tensors that make up one."""

from msgspec import Struct

from firstdrift.model.tensor import TensorRecord


class Parts(Struct, frozen=True):
    """What a tensor is joined from.

    Attributes:
        records: the parts, in order.
        are_golden: whether they are on the golden side.
        summed: whether the tensor is their sum; if not, they are laid side by side.
        rotated: whether the tensor is the first, rotated by the angles whose cosine and sine follow.
        of_experts: whether they are rows of experts, which lie one after another.
        rearranged: whether the elements of the first may lie in another order along a dimension: one that
            holds as well for what follows, a golden and a target tensor each, if anything does.
        stacked: whether they are weights of experts, which lie in a dimension of their own.
    """

    records: tuple[TensorRecord, ...]
    are_golden: bool
    summed: bool = False
    rotated: bool = False
    of_experts: bool = False
    stacked: bool = False
    rearranged: bool = False
