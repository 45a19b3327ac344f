"""English nouns in the number that a count asks for."""


def plural(number: int, one: str, many: str = "") -> str:
    """Choose between "slice" and "slices"; words that take no s are given in both forms."""
    return one if number == 1 else many or f"{one}s"


def counted(number: int, one: str, many: str = "") -> str:
    """Write a count with its noun: "1 slice", "2 slices", "0 entries"."""
    return f"{number} {plural(number, one, many)}"
