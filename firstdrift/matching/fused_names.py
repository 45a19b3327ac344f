"""What modules are called that were fused into one, and what that one is called.

q_proj, k_proj, v_proj  ─▶  qkv_proj, query_key_value, c_attn, ...
gate_proj, up_proj      ─▶  gate_up_proj, linear_fc1, ...
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
