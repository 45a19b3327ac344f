"""What is wrong with values that somebody sent, in sentences that pages say in every language."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

from firstdrift.paths import spelt

PathText = Annotated[str, BeforeValidator(lambda given: spelt(given) if isinstance(given, str) else given)]
"""A path as a client writes it; what of it no UTF-8 can be, as "\\udcb2" in JSON may say, is `spelt`."""

MOST: Final = 5
"""So many problems are told at once."""


def complaint(problems: Iterable[Mapping[str, Any]], *, without: int = 0) -> str:
    """Say what is wrong, as Pydantic lists it.

    Args:
        problems: each with the place it is at.
        without: so many steps of a place say nothing to whoever sent the value, such as "query".
    """
    return "; ".join(_sentence(problem, without) for problem in islice(problems, MOST))


def _sentence(problem: Mapping[str, Any], without: int) -> str:
    name = ".".join(map(str, problem["loc"][without:]))
    sentence, told = _SAID.get(problem["type"], ("{0}: {1}", ""))
    about = {"": problem["msg"]} | problem.get("ctx", {})
    return sentence.format(name, about[told])


_NO_INTEGER: Final = ("{0} is no whole number", "")
_SAID: Final[Mapping[str, tuple[str, str]]] = {
    "missing": ("{0} is missing", ""),
    "int_parsing": _NO_INTEGER,
    "int_parsing_size": _NO_INTEGER,
    "int_type": _NO_INTEGER,
    "int_from_float": _NO_INTEGER,
    "greater_than_equal": ("{0} is less than {1}", "ge"),
    "less_than_equal": ("{0} is more than {1}", "le"),
    "enum": ("{0} is none of these: {1}", "expected"),
    "literal_error": ("{0} is none of these: {1}", "expected"),
    "string_too_long": ("{0} is longer than {1} characters", "max_length"),
    "too_long": ("{0} has more than {1} entries", "max_length"),
}
"""By the type of a problem: what is said, and what of what is known stands in its second gap."""
