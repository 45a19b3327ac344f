"""Read the files in which people say what corresponds to what, as msprobe and msit write them.

layer_mapping   TransformerLayer:                          inside a module of this class (or TopLayer)
                  self_attention: self_attn                target path: golden path
data_mapping    Functional.add.0.forward.output.0: Torch.add.0.forward.output.0
cell_mapping    fc1.Dense: fc1.Linear                      a module and its class, or part of that
op_mapping      {"LinearOperation_outtensor0": ["Linear_output_0"]}    types
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

import yaml

from firstdrift.errors import SettingsError
from firstdrift.matching.mapping import TOP_LAYER, MappingEntry, MappingFile, MappingKind, split_item
from firstdrift.names import parse_name

_OPERATOR_FILE: Final = "op_mapping_file.json"
LARGEST_FILE: Final = 16 * 2**20
"""Bytes of a mapping file, or of a match set, that is read."""

_DEEPEST_LEVEL: Final = 4
_LONGEST_SHOWN: Final = 100
_TOP_LAYER_NAMES: Final = (TOP_LAYER, "Cell")
_OPERATOR_TYPE: Final = re.compile(r"[A-Za-z0-9_]+")

_Scalars = list[tuple[yaml.ScalarNode, yaml.Node]]

_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_mapping(path: Path) -> MappingFile:
    """Read a mapping file of any of the four kinds; which one is seen from what it holds.

    Args:
        path: the file, or the directory in which msit's `op_mapping_file.json` lies.

    Raises:
        SettingsError: the file cannot be read, is no YAML or JSON, or says something that makes no sense;
            the text names line and key.
    """
    return parse_mapping(*read_mapping_text(path))


def read_mapping_text(path: Path) -> tuple[Path, str]:
    """Read the text of a mapping file, or of the one in a directory of msit's; return where it was, too.

    Raises:
        SettingsError: it cannot be read, is no text, or is too large.
    """
    if path.is_dir():
        path /= _OPERATOR_FILE
    return path, _read_text(path)


def parse_mapping(path: Path, text: str) -> MappingFile:
    """Read what a mapping file says; `path` is what it is called.

    Raises:
        SettingsError: it is no YAML or JSON, or says something that makes no sense.
    """
    try:
        return _parse(path.name, text)
    except _WrongError as error:
        raise SettingsError(str(error), path=path, hint=error.hint) from error


class _WrongError(Exception):
    """What is wrong with a mapping file."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise SettingsError(f"is no mapping file: it is larger than {LARGEST_FILE >> 20} MiB", path=path)
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(f"is no text in UTF-8 (byte {error.start})", path=path) from error
    except OSError as error:
        reason = f"the mapping file could not be read ({error.strerror})"
        raise SettingsError(reason, path=path) from error
    except ValueError as error:
        raise SettingsError("is no path", path=repr(path)) from error


def _parse(name: str, text: str) -> MappingFile:
    is_json = text.lstrip().startswith("{")
    items = _items(_compose(text.replace("\t", " ") if is_json else text))
    if any(isinstance(value, yaml.MappingNode) for _, value in items):
        return MappingFile(name, MappingKind.LAYER, tuple(_layer_entries(items)))
    if any(isinstance(value, yaml.SequenceNode) for _, value in items) or (
        is_json and _has_types_only(items)
    ):
        return MappingFile(name, MappingKind.OPERATOR, tuple(_operator_entries(items)))
    entries = tuple(MappingEntry(_line(key), key.value, (_text(key, value),)) for key, value in items)
    if not any(_is_node_or_tensor(entry.target) for entry in entries):
        return MappingFile(name, MappingKind.CELL, entries)
    for entry in entries:
        for said in (entry.target, *entry.golden):
            if not _is_node_or_tensor(said):
                raise _WrongError(
                    f"line {entry.line}, key {_shown(entry.target)}: {_shown(said)} names no tensor",
                    "Write names as Functional.linear.0.forward.input.0",
                )
    return MappingFile(name, MappingKind.DATA, entries)


def _compose(text: str) -> yaml.Node:
    try:
        _refuse_bombs(text)
        root = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be parsed"
        raise _WrongError(f"{where}is neither YAML nor JSON: {problem}") from error
    if root is None:
        raise _WrongError("the mapping file is empty")
    return root


def _refuse_bombs(text: str) -> None:
    """Refuse aliases, by which a short text becomes an endless one, and deep nesting, before it is built."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            raise _WrongError(f"line {_line(event)}: aliases (*{event.anchor}) are not allowed")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST_LEVEL:
            raise _WrongError(f"line {_line(event)}: is nested too deeply for a mapping")


def _items(node: yaml.Node, within: str = "") -> _Scalars:
    """Return keys and values of a mapping; each key is a text that occurs once."""
    if not isinstance(node, yaml.MappingNode):
        raise _WrongError(f"line {_line(node)}: {_kind(node)} stands where a mapping is expected")
    lines: dict[str, int] = {}
    items: _Scalars = []
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or not key.value.strip():
            raise _WrongError(f"line {_line(key)}: the key is {_kind(key)}, not a name")
        if key.value in lines:
            inside = f" of {_shown(within)}" if within else ""
            first = lines[key.value]
            raise _WrongError(f"line {_line(key)}, key {_shown(key.value)}{inside}: is also on line {first}")
        lines[key.value] = _line(key)
        items.append((key, value))
    if not items and not within:
        raise _WrongError("the mapping file is empty")
    return items


def _layer_entries(items: _Scalars) -> Iterator[MappingEntry]:
    top: str | None = None
    for section, held in items:
        scope = section.value
        if scope in _TOP_LAYER_NAMES:
            if top is not None:
                raise _WrongError(f"line {_line(section)}, key {_shown(scope)}: is another name of {top}")
            top, scope = scope, TOP_LAYER
        if _is_nothing(held):
            continue
        if not isinstance(held, yaml.MappingNode):
            raise _WrongError(
                f"line {_line(held)}, key {_shown(section.value)}: holds {_kind(held)}, not a mapping",
                "A layer mapping holds for each class the paths inside it",
            )
        for key, value in _items(held, scope):
            target, golden = _without_class(key.value), _without_class(_text(key, value))
            if not target or not golden:
                raise _WrongError(f"line {_line(key)}, key {_shown(key.value)}: a path is empty")
            yield MappingEntry(_line(key), target, (golden,), scope)


def _operator_entries(items: _Scalars) -> Iterator[MappingEntry]:
    for key, value in items:
        held = value.value if isinstance(value, yaml.SequenceNode) else [value]
        types = tuple(_text(key, item) for item in held)
        if not types:
            raise _WrongError(f"line {_line(key)}, key {_shown(key.value)}: the list is empty")
        for said in (key.value, *types):
            if not _OPERATOR_TYPE.fullmatch(said):
                raise _WrongError(
                    f"line {_line(key)}, key {_shown(key.value)}: {_shown(said)} is no operator type",
                    "A type has letters, digits and _ only",
                )
        yield MappingEntry(_line(key), key.value, types)


def _has_types_only(items: _Scalars) -> bool:
    texts = [node.value for item in items for node in item if isinstance(node, yaml.ScalarNode)]
    return all(_OPERATOR_TYPE.fullmatch(text) for text in texts)


def _is_node_or_tensor(name: str) -> bool:
    parts = parse_name(name)
    return split_item(name)[1] is not None or parts.direction != "none" or parts.holds_gradients


def _text(key: yaml.ScalarNode, value: yaml.Node) -> str:
    if _is_nothing(value):
        raise _WrongError(f"line {_line(key)}, key {_shown(key.value)}: has no value")
    if not isinstance(value, yaml.ScalarNode):
        _refuse_value(key, value)
    return str(value.value).strip()


def _refuse_value(key: yaml.ScalarNode, value: yaml.Node) -> NoReturn:
    raise _WrongError(f"line {_line(value)}, key {_shown(key.value)}: holds {_kind(value)}, not a name")


def _is_nothing(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and (node.tag.endswith(":null") or not node.value.strip())


def _without_class(path: str) -> str:
    """Cut off a class in brackets, as printed models have it: "model(LlamaModel)" is "model"."""
    return path.partition("(")[0].strip()


def _line(of: yaml.Node | yaml.Event) -> int:
    return of.start_mark.line + 1 if of.start_mark is not None else 0


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return "nothing" if _is_nothing(node) else f"the text {_shown(node.value)}"
    return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…")
