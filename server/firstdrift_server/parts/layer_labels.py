"""Short names of layers, by which a chart tells them apart.

model.layers.0, model.layers.1                       ─▶  0, 1
model.encoder.layers.0, model.decoder.layers.0       ─▶  encoder.0, decoder.0
"""

from collections.abc import Iterable, Sequence
from itertools import takewhile


def layer_labels(names: Sequence[str]) -> list[str]:
    """Return the last part of each name; before it what tells its list from others that count alike."""
    split = [tuple(name.split(".")) for name in names]
    tails = [parts[-1] for parts in split]
    if len(set(tails)) == len(tails):
        return tails
    lists = {parts[:-1] for parts in split}
    first = _alike(lists)
    last = _alike(parts[first:][::-1] for parts in lists)
    return [".".join((*parts[first : len(parts) - 1 - last], parts[-1])) for parts in split]


def _alike(lists: Iterable[tuple[str, ...]]) -> int:
    """Count the parts with which all of them begin."""
    return sum(1 for _ in takewhile(lambda parts: len(set(parts)) == 1, zip(*lists, strict=False)))
