"""What modules are called that were fused into one, and what that one is called.

q_proj, k_proj, v_proj  ─▶  qkv_proj, query_key_value, c_attn, ...
gate_proj, up_proj      ─▶  gate_up_proj, linear_fc1, ...

The same names tell the parts apart: what is called q_proj is no key, whatever its shape.
"""

from typing import Final

from msgspec import Struct


class Fusion(Struct, frozen=True):
    """Names of parts, in the order in which they are joined, and names of the whole; in lower case."""

    parts: tuple[tuple[str, ...], ...]
    whole: frozenset[str]


_QUERY_KEY_VALUE: Final = (
    ("q_proj", "k_proj", "v_proj"),
    ("q", "k", "v"),
    ("query", "key", "value"),
    ("wq", "wk", "wv"),
    ("to_q", "to_k", "to_v"),
    ("linear_q", "linear_k", "linear_v"),
    ("q_linear", "k_linear", "v_linear"),
)
_GATE_UP: Final = (
    ("gate_proj", "up_proj"),
    ("gate", "up"),
    ("w1", "w3"),
    ("wi_0", "wi_1"),
    ("linear_gate", "linear_up"),
)
FUSIONS: Final = (
    Fusion(
        _QUERY_KEY_VALUE,
        frozenset(
            "qkv qkv_proj linear_qkv qkv_linear w_pack query_key_value c_attn wqkv in_proj to_qkv".split()  # noqa: SIM905
        ),
    ),
    Fusion(
        tuple(names[1:] for names in _QUERY_KEY_VALUE),
        frozenset("kv kv_proj linear_kv key_value wkv to_kv".split()),  # noqa: SIM905
    ),
    Fusion(
        _GATE_UP,
        frozenset("gate_up_proj gate_up linear_fc1 dense_h_to_4h w12 w13 wi gate_and_up_proj".split()),  # noqa: SIM905
    ),
)

FUSED_NAMES: Final = frozenset(
    {name for fusion in FUSIONS for names in (*fusion.parts, fusion.whole) for name in names}
)
"""What modules are called, in lower case, that may be fused into one, or be such a one."""


def parts_of_name(whole: str) -> list[tuple[str, ...]]:
    """Return what may have been fused into something of a name, each way with its names in order."""
    return [names for fusion in FUSIONS if whole in fusion.whole for names in fusion.parts]


_WORDS: Final = {"q": 0, "query": 0, "k": 1, "key": 1, "v": 2, "value": 2, "o": 3, "out": 3, "output": 3}
"""What of attention a name is of that has such a word; what follows it is the fourth."""

_PLACES: Final = {
    name: (which, place)
    for which, spellings in enumerate((_QUERY_KEY_VALUE, _GATE_UP))
    for names in spellings
    for place, name in enumerate(names)
} | dict.fromkeys(("wo", "linear_proj", "proj", "dense", "c_proj"), (0, 3))
"""In which list of parts a name is, and at which place."""


def are_other_parts(one: str, other: str) -> bool:
    """Tell whether two names are those of different parts of one thing: of query and key, or gate and up.

    What follows attention, such as "o_proj", is neither query, key nor value.
    """
    first, second = (_place(name.rpartition(".")[2].lower()) for name in (one, other))
    return first is not None and second is not None and first != second and first[0] == second[0]


def _place(name: str) -> tuple[int, int] | None:
    """Return of what a name is that of a part, and of which; None if that is not clear."""
    if (known := _PLACES.get(name)) is not None:
        return known
    places = {_WORDS[word] for word in name.split("_") if word in _WORDS}
    return (0, places.pop()) if len(places) == 1 else None
