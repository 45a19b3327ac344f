"""No module but those of firstdrift/operators lists what operators and modules are called."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from firstdrift.operators.registry import aliases_of, registry

LIBRARY = Path(__file__).parents[2] / "firstdrift"
COLLECTIONS = (ast.Set, ast.Tuple, ast.List, ast.Dict)

OF_OTHER_THINGS = {
    *("maximum", "minimum", "mean", "norm", "max", "min", "std", "var", "sum", "float", "double", "half"),
    *("bfloat16", "bool", "int", "type", "key", "value", "output", "out", "tensor", "numpy", "stack", "full"),
    *("model", "layers", "all"),
}
"""Names of statistics, dtypes and roles of tensors, and words of file names, which operators have as well."""

WORDS = {"attn", "norm", "expert", "experts", "shared", "router", "embed", "proj", "moe", "rope", "rotary"}
"""Parts of names that are told by regular expressions, beside whole names."""

EXCEPTIONS = {
    "matching/cross_framework/match.py": "has a message for each part of a layer of operators/paths.py",
    "verdict/tool_rules.py": "mirrors the rules of msprobe, name by name, and changes when msprobe does",
}
"""Files outside of operators/ that list such names, each with the reason."""


def names_of_the_registry() -> set[str]:
    known = registry()
    aliases = {alias for entry in known.operators.values() for alias in aliases_of(entry)}
    return {name for name in aliases | set(known.by_name) | set(WORDS) if len(name) > 2} - set(
        OF_OTHER_THINGS
    )


def strings(nodes: Iterable[ast.AST | None]) -> list[str]:
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def vocabulary(node: ast.AST) -> list[str]:
    """Return the words of a collection, a regular expression, a text that is split, or a question."""
    if isinstance(node, COLLECTIONS):
        return strings([*(node.keys if isinstance(node, ast.Dict) else node.elts)])
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        return strings([node.left]) * 2
    if not isinstance(node, ast.Call):
        return []
    called = ast.unparse(node.func)
    if called.startswith("re."):
        text = " ".join(strings(ast.walk(node))).lower()
        return sorted({*re.split("[^a-z]+", text), *(word.strip("_") for word in re.split("[^a-z_]+", text))})
    if isinstance(node.func, ast.Attribute) and node.func.attr == "split":
        return " ".join(strings([node.func.value])).split()
    return []


def lists_of_names(source: str, known: set[str]) -> Iterator[str]:
    """Yield what a module lists of the names of the registry, two and more in one place."""
    for node in ast.walk(ast.parse(source)):
        found = [word for word in vocabulary(node) if word.lower() in known]
        if len(found) > 1:
            yield f"line {getattr(node, 'lineno', 0)}: {', '.join(found)}"


def test_lists_of_names_stand_in_the_registry_alone() -> None:
    known = names_of_the_registry()
    found = {}
    for path in sorted(LIBRARY.rglob("*.py")):
        lists = list(lists_of_names(path.read_text("utf-8"), known))
        if lists and path.parent.name != "operators":
            found[path.relative_to(LIBRARY).as_posix()] = lists
    assert {name: lists for name, lists in found.items() if name not in EXCEPTIONS} == {}
    assert sorted(found) == sorted(EXCEPTIONS), "an exception that is none any longer"


def test_a_list_of_names_is_found_however_it_is_written() -> None:
    known = names_of_the_registry()
    for source in (
        'HEADS = ("lm_head", "output_layer")',
        'HEADS = {"lm_head": 1, "embed_out": 2}',
        'HEADS = frozenset("lm_head embed_out".split())',
        'HEADS = re.compile(r"(^|[.])(lm_head|embed_out)$")',
        'is_head = "lm_head" in path',
    ):
        assert list(lists_of_names(source, known)), source
    assert not list(lists_of_names('DTYPES = ("float", "int")', known))
