"""Decoders of records, made by one thread at a time.

msgspec writes down with the class of a record what its fields are, and shows that to other threads before it
is whole: one that decodes such a record meanwhile ends the process (SIGSEGV).
"""

from collections.abc import Callable
from threading import RLock
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Decoder = TypeVar("Decoder")

_MAKING = RLock()


def made_alone(make: Callable[Given, Decoder], *given: Given.args, **named: Given.kwargs) -> Decoder:
    """Make a decoder while no other thread makes one."""
    with _MAKING:
        return make(*given, **named)
