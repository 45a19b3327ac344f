"""How many tensors are proven to hold the same bits, by what, and how many are not."""

from msgspec import Struct


class BitCount(Struct, frozen=True):
    """Tensors, and Python arguments, by what their bits were compared by.

    Attributes:
        values: proven equal element by element.
        elements: how many elements these have.
        digests: equal by a checksum that depends on the order of the elements.
        xor: equal by an XOR checksum, which does not.
        arguments: Python arguments that are equal.
        different: proven different.
        unproven: nothing recorded of them proves either.
    """

    values: int = 0
    elements: int = 0
    digests: int = 0
    xor: int = 0
    arguments: int = 0
    different: int = 0
    unproven: int = 0

    def __add__(self, other: "BitCount") -> "BitCount":
        """Add field by field."""
        names = BitCount.__struct_fields__
        return BitCount(*(getattr(self, name) + getattr(other, name) for name in names))

    @property
    def equal(self) -> int:
        """How many are equal, by whatever that was told."""
        return self.values + self.digests + self.xor + self.arguments

    @property
    def proves_nothing(self) -> bool:
        """Whether it says nothing of any tensor, although there are some: neither equal nor different."""
        return bool(self.unproven) and not (self.values or self.digests or self.xor or self.different)


class BitsOfSlice(Struct, frozen=True):
    """What is known of the bits of a pair of slices.

    Attributes:
        all: of all of it; likewise before: of what was handed over before the first difference.
        made: the node of the first difference was given something, and nothing but equals.
    """

    all: BitCount
    before: BitCount
    made: bool = False
