"""The columns of a map of layers: which layers of different slices are the same.

    token 0   Prefill_layer.0   Prefill_layer.1   ...   →   column "Prefill_layer.0, Decoder_layer.0", ...
    token 1   Decoder_layer.0   Decoder_layer.1   ...

What a run calls by another name at another time are the same layers. Stacks that run at one time (an encoder
and a decoder, the layers of two ranks of a pipeline) are not.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct

from firstdrift.groups import seconds
from firstdrift.model.slice import Coordinates


class LayerColumns(Struct, frozen=True):
    """The columns of a map.

    Attributes:
        names: of the columns; one that stands for layers of several names lists them.
        of_path: the number of the column that each layer is in.
    """

    names: tuple[str, ...]
    of_path: Mapping[str, int]


def layer_columns(layers: Iterable[tuple[object, str]]) -> LayerColumns:
    """Give layers, named by the moment when they ran and their path, columns in order of appearance."""
    found = dict.fromkeys(layers)
    numbers: defaultdict[str, set[str]] = defaultdict(set)
    ran: defaultdict[str, set[object]] = defaultdict(set)
    for moment, path in found:
        stack, _, number = path.rpartition(".")
        numbers[stack].add(number)
        ran[stack].add(moment)
    same = _same_stacks(numbers, ran)
    columns: dict[tuple[str, str], int] = {}
    of_path: dict[str, int] = {}
    for path in dict.fromkeys(seconds(found)):
        stack, _, number = path.rpartition(".")
        of_path[path] = columns.setdefault((same[stack], number), len(columns))
    names: list[list[str]] = [[] for _ in columns]
    for path, column in of_path.items():
        names[column].append(path)
    return LayerColumns(tuple(map(", ".join, names)), of_path)


def moment_of(coordinates: Coordinates) -> object:
    """Say when a slice ran; those of several ranks ran at one moment."""
    return coordinates.step, coordinates.micro_step, coordinates.token


def _same_stacks(numbers: Mapping[str, set[str]], ran: Mapping[str, set[object]]) -> dict[str, str]:
    """Say for each stack which is the first that it is the same as: perhaps itself.

    It is the one that has the most layers in common with it, if one has more than all others.
    """
    same: dict[str, str] = {}
    moments: dict[str, set[object]] = {}
    for stack, own in numbers.items():
        apart = [one for one in moments if moments[one].isdisjoint(ran[stack])]
        shares = {one: len(own & numbers[one]) / len(own | numbers[one]) for one in apart}
        best = max(shares.values(), default=0)
        fits = [one for one, share in shares.items() if share == best > 0]
        first = same[stack] = fits[0] if len(fits) == 1 else stack
        moments.setdefault(first, set()).update(ran[stack])
    return same
