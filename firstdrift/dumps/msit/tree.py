"""Which modules and operator calls a msit torch dump has, from `model_tree.json` and folder names.

    {"name": "root", "type": "LlamaForCausalLM", "children": [{"name": "root.model", …}]}

A folder that the tree does not name is an operator call if the tree names the module around it. Where
that module is missing too, the tree was cut short (the run died in its first pass) and names decide.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from firstdrift.dumps.execution_order import natural_key
from firstdrift.dumps.storage.json_file import read_json
from firstdrift.errors import DumpUnreadableError
from firstdrift.model.names import enclosing_paths, is_beyond_reason
from firstdrift.model.node import NodeKind
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
        """The last part of the name."""
        return self.name.rpartition(".")[2]

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


def read_tree(file: Path) -> tuple[TreeEntry, ...]:
    """Read the tree in the order of definition, parents before children.

    Raises:
        DumpUnreadableError: the file is missing, cut short or no such tree.
    """
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

    Args:
        tree: entries of `model_tree.json`; empty where it is missing.
        folders: names of the module folders of all tokens.
        owners: names of the modules that own saved parameters.
        types: class of a module by folder name, where it is known otherwise.
    """
    folders = set(folders)
    are_operators_told = bool(tree) and not is_cut_short(tree, folders)
    outlines = {
        entry.name: Outline(
            entry.name,
            NodeKind.MODULE if entry.parent else NodeKind.MODEL,
            entry.type_name,
            entry.parent,
            is_certain=True,
        )
        for entry in tree
    }
    around = {name for folder in (*folders, *owners) for name in enclosing_paths(folder)}
    for name in sorted({*folders, *owners, *around} - outlines.keys(), key=natural_key):
        parent, _, label = name.rpartition(".")
        is_operator = name not in around and name in folders and (are_operators_told or label in calls_only())
        kind = NodeKind.API if is_operator else NodeKind.MODULE if parent else NodeKind.MODEL
        type_name = label if is_operator else types.get(name, "")
        within = None if is_beyond_reason(name) else parent or None
        outlines[name] = Outline(name, kind, type_name, within, name not in folders)
    return outlines
