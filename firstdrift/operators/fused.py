"""What modules are called that were fused into one, and what that one is called.

q_proj, k_proj, v_proj  ─▶  qkv_proj, query_key_value, c_attn, ...
gate_proj, up_proj      ─▶  gate_up_proj, linear_fc1, ...

The same names tell the parts apart: what is called q_proj is no key, whatever its shape.
"""

from functools import cache

from msgspec import Struct

from firstdrift.operators.registry import registry


class Fusion(Struct, frozen=True):
    """Names of parts, in the order in which they are joined, and names of the whole; in lower case."""

    parts: tuple[tuple[str, ...], ...]
    whole: frozenset[str]


@cache
def fusions() -> tuple[Fusion, ...]:
    """Return what may be fused, with all ways in which its parts are spelled."""
    modules = registry().modules
    return tuple(
        Fusion(
            tuple(zip(*(modules[part].spellings for part in fusion.parts), strict=True)),
            frozenset(modules[fusion.whole].names),
        )
        for fusion in registry().fusions
    )


@cache
def fused_names() -> frozenset[str]:
    """Return what modules are called, in lower case, that may be fused into one, or be such a one."""
    return frozenset(
        name for fusion in fusions() for names in (*fusion.parts, fusion.whole) for name in names
    )


def parts_of_name(whole: str) -> list[tuple[str, ...]]:
    """Return what may have been fused into something of a name, each way with its names in order."""
    return [names for fusion in fusions() if whole in fusion.whole for names in fusion.parts]


def other_spellings(name: str, module: str) -> list[str]:
    """Return what else a module of the registry is called; nothing if a name is none of its names."""
    spellings = registry().modules[module].spellings
    return [other for other in spellings if other != name] if name in spellings else []


def are_other_parts(one: str, other: str) -> bool:
    """Tell whether two names are those of different parts of one thing: of query and key, or gate and up.

    What follows attention, such as "o_proj", is neither query, key nor value.
    """
    first, second = (_place(name.rpartition(".")[2].lower()) for name in (one, other))
    return first is not None and second is not None and first != second and first[0] == second[0]


def _place(name: str) -> tuple[int, int] | None:
    """Return which fusion a name belongs to, and which of its parts it names; None if that is not clear."""
    by_name, by_word = _places()
    if (known := by_name.get(name)) is not None:
        return known
    places = {by_word[word] for word in name.split("_") if word in by_word}
    return places.pop() if len(places) == 1 else None


@cache
def _places() -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]]:
    """Return fusion and part of each name, and of each word that tells parts apart."""
    by_name: dict[str, tuple[int, int]] = {}
    by_word: dict[str, tuple[int, int]] = {}
    for which, fusion in enumerate(registry().fusions):
        ids = (*fusion.parts, fusion.followed_by) if fusion.followed_by else fusion.parts
        for part, module in enumerate(registry().modules[each] for each in ids):
            for names, found in ((module.spellings, by_name), (module.words, by_word)):
                for name in names:
                    found.setdefault(name, (which, part))
    return by_name, by_word
