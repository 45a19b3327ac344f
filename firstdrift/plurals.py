"""English nouns in the number that a count asks for."""


def counted(number: int, one: str) -> str:
    """Write a count with its noun: "1 slice", "2 slices"."""
    return f"{number} {one}{'s' * (number != 1)}"
