"""What people said corresponds to what: the entries of mapping files."""

import re
from enum import StrEnum
from typing import Final

from msgspec import Struct

from firstdrift.wording.message import Message

TOP_LAYER: Final = "TopLayer"
"""Scope of the entries of a layer mapping that hold for the whole model."""

_ITEM: Final = re.compile(
    r"(?P<node>.+\.(?:(?:forward|backward)(?:\.\d+)?|parameters_grad(?:\.\d+)?))"
    r"\.(?P<role>input|output|parameters|parameter)\.(?P<key>.+)"
)
_NAMED_TENSOR: Final = re.compile(r"(?P<node>.+)\.(?P<role>input|output|parameter|gradient)s?\.(?P<key>.+?)")
"""A tensor of a node whose name says no pass, as engines write it: model.layers.0.mlp.output.0."""

VIEW: Final = re.compile(
    r"concatenated|summed|rearranged"
    r"|(?P<side>golden|target) (?P<step>swapped|shaped|first|last|rows|renumbered)"
    r"(?P<numbers>(?: -?[0-9]{1,18}){1,4096})"
)
"""What a view mapping may say of how tensors are seen."""

_GRADIENT_ITEM: Final = re.compile(r"(?P<node>.+\.parameters_grad(?:\.\d+)?)\.(?P<key>[^.]+)")


class MappingKind(StrEnum):
    """Which of the tools' formats a mapping file is in."""

    LAYER = "layer_mapping"
    DATA = "data_mapping"
    CELL = "cell_mapping"
    API = "api_mapping"
    VIEW = "view_mapping"
    OPERATOR = "op_mapping"


class MappingEntry(Struct, frozen=True):
    """One line of a mapping file: what is so called in the target is so called in the golden dump.

    Attributes:
        line: where it stands in the file, from 1.
        target: path, name or type in the target dump.
        golden: the same in the golden dump; a type may have several.
        scope: class of the module around both, for layer mappings; "TopLayer" for the model itself. For the
            tensors of an API mapping, the operator of the target dump that they belong to.
        view: how tensors are seen as each other, for view mappings: "concatenated", "target swapped 0 1". Of
            several target tensors each has an entry of the same line.
    """

    line: int
    target: str
    golden: tuple[str, ...]
    scope: str = ""
    view: tuple[str, ...] = ()


class MappingFile(Struct, frozen=True):
    """What a mapping file says.

    Attributes:
        name: its name, as it is shown.
        kind: which of the tools' formats it is in.
        entries: in the order of the file.
        may_quote: whether whoever sees the results has the file anyway. If not, what matched nothing, and so
            may be anything, is told by its line alone.
    """

    name: str
    kind: MappingKind
    entries: tuple[MappingEntry, ...]
    may_quote: bool = True

    def name_entry(self, entry: MappingEntry) -> Message:
        """Say which entry it is: "layers.yaml line 9, MLP: linear_fc2 -> down_proj"."""
        names = {"file": self.name, "target": entry.target, "scope": entry.scope}
        which = "matching.mapping.scoped_entry" if entry.scope else "matching.mapping.entry"
        return Message.of(which, line=entry.line, golden=entry.golden, **names)


def split_item(name: str) -> tuple[str, str | None]:
    """Take the name of a tensor apart: name of its node, and role and key as "output.0"; None if it has none.

    `Module.fc.Linear.forward.0.parameters.weight` is `parameter.weight` of `Module.fc.Linear.forward.0`.
    """
    if item := _ITEM.fullmatch(name):
        return item["node"], f"{item['role'].removesuffix('s')}.{item['key']}"
    if (item := _GRADIENT_ITEM.fullmatch(name)) and not item["key"].isdigit():
        return item["node"], f"gradient.{item['key']}"
    return name, None


def split_tensor(name: str) -> tuple[str, str | None]:
    """Do the same of a name that is known to be that of a tensor: that of its node may say no pass."""
    found = split_item(name)
    if found[1] is None and (item := _NAMED_TENSOR.fullmatch(name)):
        return item["node"], f"{item['role']}.{item['key']}"
    return found
