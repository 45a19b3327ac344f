"""Take apart the names that dumping tools give to modules and operator calls.

    Module.model.layers.0.mlp.down_proj.Linear.forward.2
           └───────────── path ───────┘ type   pass    call

    Functional.linear.20.backward          Module.lm_head.Linear.parameters_grad.0
    └──── path ────┘ call pass             gradients of the parameters of lm_head

Words such as "forward" may occur in a path; only the last two parts of a name say which pass it is of.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Literal

from msgspec import Struct

PARAMETERS_GRAD: Final = "parameters_grad"

_PASSES: Final = ("forward", "backward")
_FRAMEWORK_PREFIXES: Final = ("Module.", "Cell.", "root.")
_MOST_REMEMBERED: Final = 1 << 16
"""Both sides of a comparison have much the same names, and each is taken apart more than once."""

MOST_PARTS: Final = 64
"""Parts of a name whose modules are looked for; those of real models have a dozen, twenty at most."""

LONGEST_NAME: Final = 2048
"""Characters of such a name; those of real models have a hundred, those of compilers some hundreds."""

_LONGEST_CALL: Final = 18
"""Digits of the largest call number; what is longer is part of the name (and fits no database column)."""


class NameParts(Struct, frozen=True):
    """What the name of a node says.

    Attributes:
        kind: module or api.
        path: dotted module path without the framework's prefix; for an operator "Functional.linear".
        type_name: class of the module, the operator's path, or "parameters_grad" for gradients of a module.
        direction: forward, backward or none.
        call: which call of this name, from 0.
    """

    kind: str
    path: str
    type_name: str
    direction: str
    call: int

    @property
    def holds_gradients(self) -> bool:
        """Tell whether the name stands for the gradients of a module's parameters."""
        return self.type_name == PARAMETERS_GRAD and self.direction == "backward"


def holds_gradients(name: str) -> bool:
    """Tell whether a name stands for the gradients of a module's parameters."""
    return PARAMETERS_GRAD in name and parse_name(name).holds_gradients


@lru_cache(maxsize=_MOST_REMEMBERED)
def parse_name(name: str) -> NameParts:
    """Take a name of a module or of an operator call apart.

    A name of neither form ("optimizer", "clip_grad") is a module without direction.
    """
    if called := _called(name):
        if called.kind == "api":
            return NameParts("api", called.name, called.name, called.direction, int(called.number))
        path, _, type_name = module_path(called.name).rpartition(".")
        return NameParts("module", path, type_name, called.direction, int(called.number))
    if with_gradients := _with_gradients(name):
        module, call = with_gradients
        path = module_path(module).rpartition(".")[0]
        return NameParts("module", path, PARAMETERS_GRAD, "backward", call)
    return NameParts("module", module_path(name), module_path(name), "none", 0)


class _Called(Struct, gc=False):
    """What the last two parts of the name of a call say, and what is before them."""

    kind: str
    name: str
    direction: str
    number: str


def _called(name: str) -> _Called | None:
    head, _, last = name.rpartition(".")
    rest, _, word = head.rpartition(".")
    if rest and last in _PASSES and _is_call(word):
        return _Called("api", rest, last, word)
    if rest and word in _PASSES and _is_call(last):
        return _Called("module", rest, word, last)
    return None


def _with_gradients(name: str) -> tuple[str, int] | None:
    """Return the module whose gradients a name stands for, and the number of the call."""
    head, _, last = name.rpartition(".")
    rest, _, word = head.rpartition(".")
    if word == PARAMETERS_GRAD and rest and _is_call(last):
        return rest, int(last)
    return (head, 0) if last == PARAMETERS_GRAD and head else None


def module_path(name: str) -> str:
    """Strip the framework's prefix: "root.norm" and "Module.norm" are "norm"; "root" is ""."""
    if name == "root":
        return ""
    return name.partition(".")[2] if name.startswith(_FRAMEWORK_PREFIXES) else name


def is_beyond_reason(name: str) -> bool:
    """Tell whether a name is too long, or has too many parts, to say in which modules something lies."""
    return len(name) > LONGEST_NAME or name.count(".") >= MOST_PARTS


def enclosing_paths(path: str) -> Iterator[str]:
    """Yield the paths around a path, innermost first: "a.b.c" lies in "a.b", which lies in "a".

    A path beyond reason has none: all those around it would take the square of its length.
    """
    if is_beyond_reason(path):
        return
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


@lru_cache(maxsize=_MOST_REMEMBERED)
def with_direction(name: str, direction: Literal["forward", "backward"]) -> str:
    """Return the name of the other pass of the same call; a name without direction is returned as it is."""
    called = _called(name)
    if called is None:
        return name
    if called.kind == "api":
        return f"{called.name}.{called.number}.{direction}"
    return f"{called.name}.{direction}.{called.number}"


def _is_call(text: str) -> bool:
    if text == "0":
        return True
    return text.isascii() and text.isdigit() and text[0] != "0" and len(text) <= _LONGEST_CALL
