"""Which modules and operator calls a msit torch dump has, from `model_tree.json` and folder names.

    {"name": "root", "type": "LlamaForCausalLM", "children": [{"name": "root.model", …}]}

A folder that the tree does not name is an operator call if the tree names the module around it. Where
that module is missing too, the tree was cut short (the run died in its first pass) and names decide.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

from msgspec import Struct

from firstdrift.dumps.execution_order import natural_key
from firstdrift.dumps.nodes import last_part, module_around
from firstdrift.dumps.storage.json_file import read_json
from firstdrift.errors import DumpUnreadableError
from firstdrift.model.names import enclosing_paths
from firstdrift.model.node import NodeKind
from firstdrift.operators.order import OPERATOR
from firstdrift.operators.properties import calls_only
from firstdrift.wording.message import Message

ROOT = "root"


class Outline(Struct, frozen=True):
    """A node without its tensors.

    Attributes:
        name: "root.model.layers.0.mlp", as the dump writes it.
        kind: model, module or api.
        type_name: class of the module, name of the operator; empty where unknown.
        parent: name of the node around it.
        is_certain: it is part of the model, so of every token; else only of tokens with its folder.
    """

    name: str
    kind: NodeKind
    type_name: str
    parent: str | None
    is_certain: bool

    @property
    def label(self) -> str:
        """What tells when it runs: the last part of the name of a module."""
        return OPERATOR if self.kind is NodeKind.API else last_part(self.name)

    @property
    def path(self) -> str:
        """The name without "root."; for the root its class."""
        if self.name == ROOT:
            return self.type_name or ROOT
        return self.name.removeprefix(f"{ROOT}.")


class TreeEntry(Struct, frozen=True):
    """A node of `model_tree.json`."""

    name: str
    type_name: str
    parent: str | None

    def outline(self) -> Outline:
        """Return the node that it stands for."""
        kind = NodeKind.MODULE if self.parent else NodeKind.MODEL
        return Outline(self.name, kind, self.type_name, self.parent, is_certain=True)


def read_tree(file: Path) -> tuple[TreeEntry, ...]:
    """Read the tree in the order of definition, parents before children."""
    waiting = [(read_json(file).value, None)]
    entries: dict[str, TreeEntry] = {}
    while waiting:
        value, parent = waiting.pop()
        try:
            name, type_name, children = value["name"], value["type"], value["children"]
            is_tree = isinstance(name, str) and isinstance(type_name, str) and name not in entries
            waiting.extend((child, name) for child in reversed(children))
        except (KeyError, TypeError) as exc:
            raise DumpUnreadableError(Message.of("dumps.msit.no_tree"), path=file) from exc
        if not is_tree:
            raise DumpUnreadableError(Message.of("dumps.msit.no_names_or_types"), path=file)
        entries[name] = TreeEntry(name, type_name, parent)
    return tuple(entries.values())


def is_cut_short(tree: Sequence[TreeEntry], folders: Iterable[str]) -> bool:
    """Tell whether folders belong to modules that the tree should name and does not."""
    named = {entry.name for entry in tree}
    return any(folder not in named and folder.rpartition(".")[0] not in named for folder in folders)


def outline_nodes(
    tree: Sequence[TreeEntry], folders: Iterable[str], owners: Iterable[str], types: dict[str, str]
) -> dict[str, Outline]:
    """Outline all nodes, parents before children: those of the tree, then those known from names.

    Names are those of the module folders of all tokens, and of the owners of saved parameters; `types` has
    the classes of modules that are known otherwise.
    """
    folders = set(folders)
    outlines = {entry.name: entry.outline() for entry in tree}
    around = set(chain.from_iterable(map(enclosing_paths, (*folders, *owners))))
    operators = folders - around
    if not tree or is_cut_short(tree, folders):
        operators = {name for name in operators if last_part(name) in calls_only()}
    for name in sorted({*folders, *owners, *around} - outlines.keys(), key=natural_key):
        kind, type_name = _kind(name), types.get(name, "")
        if name in operators:
            kind, type_name = NodeKind.API, last_part(name)
        outlines[name] = Outline(name, kind, type_name, module_around(name), is_certain=name not in folders)
    return outlines


def _kind(name: str) -> NodeKind:
    return NodeKind.MODULE if name.rpartition(".")[0] else NodeKind.MODEL
