"""Read the files in which people say what corresponds to what, as msprobe and msit write them.

layer_mapping   TransformerLayer:                          inside a module of this class (or TopLayer)
                  self_attention: self_attn                target path: golden path
data_mapping    Functional.add.0.forward.output.0: Torch.add.0.forward.output.0
cell_mapping    fc1.Dense: fc1.Linear                      a module and its class, or part of that
op_mapping      {"LinearOperation_outtensor0": ["Linear_output_0"]}    types
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import yaml
from msgspec.structs import replace

from firstdrift.errors import PathOutsideRootsError, SettingsError
from firstdrift.files import OutsideError, RefusedError, read_regular
from firstdrift.matching.manual.mapping import TOP_LAYER, MappingEntry, MappingFile, MappingKind, split_item
from firstdrift.model.names import parse_name
from firstdrift.paths import inside

_OPERATOR_FILE: Final = "op_mapping_file.json"
LARGEST_FILE: Final = 16 * 2**20
"""Bytes of a mapping file, or of a match set, that is read."""

_DEEPEST_LEVEL: Final = 4
_LONGEST_SHOWN: Final = 100
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_NAME: Final = re.compile(r"(?!.{513})[A-Za-z0-9_]{1,128}(?:\.[A-Za-z0-9_]{1,128})*")
_CLASS: Final = re.compile(r"_?[A-Z][A-Za-z0-9_]*")
_CLASS_OF_WORDS: Final = re.compile(r"_?[A-Z][A-Za-z0-9_]*[A-Z][A-Za-z0-9_]*|Cell")
"""TransformerLayer, MLP, Qwen2Attention; `Database`, which a file of settings may have, is one word."""

_CELL: Final = re.compile(r"(?:.+\.)(?:_?[A-Z][A-Za-z0-9_]*(?:\.[0-9]+)?|[a-z0-9_]+\.[0-9]+)")
_TYPE: Final = re.compile(r"_?[A-Z][A-Za-z0-9_]*")
_SECRET: Final = re.compile(
    r"(?i)passw(?:or)?d|passphrase|secret|credential|(?:api|access|private|auth|ssh)_?(?:key|token)(?![a-z])"
)
"""What names the secrets of people, and no module of a network."""

_SAID_OF_YAML: Final = frozenset(
    {
        "mapping values are not allowed in this context",
        "could not find expected ':'",
        "did not find expected key",
        "did not find expected node content",
        "did not find expected ',' or '}'",
        "did not find expected ',' or ']'",
        "did not find expected '-' indicator",
        "found character that cannot start any token",
        "found a tab character that violates indentation",
        "found unexpected end of stream",
        "found unexpected document indicator",
        "block sequence entries are not allowed in this context",
    }
)
"""What the parser says of a file without quoting it."""

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


def read_mapping_text(path: Path, *, within: Sequence[Path] | None = None) -> tuple[Path, str]:
    """Read the text of a mapping file, or of the one in a directory of msit's; return where it was, too.

    Args:
        path: the file, or the directory.
        within: real paths, below one of which both must lie; None: wherever they lie.

    Raises:
        SettingsError: it cannot be read, is no text, or is too large.
        PathOutsideRootsError: it lies elsewhere, whether or not it exists.
    """
    if within is not None:
        path = inside(within, path)
    if path.is_dir():
        path /= _OPERATOR_FILE
        # What was added to a path that was inside may be a link that leads out.
        path = path if within is None else inside(within, path)
    return path, _read_text(path, within)


def parse_mapping(path: Path, text: str, *, may_quote: bool = True) -> MappingFile:
    """Read what a mapping file says; `path` is what it is called.

    Args:
        path: the name of the file.
        text: what it holds.
        may_quote: whether whoever gets to see the answer has the text anyway. If not, what may be anything
            (settings with passwords are YAML, too) must be a mapping beyond doubt, and errors say lines and
            kinds only.

    Raises:
        SettingsError: it is no YAML or JSON, or says something that makes no sense.
    """
    try:
        mapping = _parse(path.name, text)
        if not may_quote:
            _require_genuine(path.name, mapping)
    except _WrongError as error:
        reason = error.quoting if may_quote else error.plain
        raise SettingsError(reason, path=path, hint=error.hint) from (error if may_quote else None)
    return mapping if may_quote else replace(mapping, may_quote=False)


class _WrongError(Exception):
    """What is wrong with a mapping file.

    Attributes:
        quoting: where and what, in the words of the file.
        plain: the same without them.
        hint: what to try.
    """

    def __init__(
        self,
        problem: "str | Callable[[_Show], str]",
        *,
        line: int = 0,
        key: str = "",
        scope: str = "",
        hint: str = "",
    ) -> None:
        """Take a problem, or what says it of the texts of the file, given how to show those."""
        quoting = problem if isinstance(problem, str) else problem(_shown)
        plain = problem if isinstance(problem, str) else problem(_unsaid)
        super().__init__(plain)
        self.quoting, self.plain = quoting, plain
        inside = f" of {_shown(scope)}" if scope else ""
        if line:
            self.plain = f"line {line}: {plain}"
            self.quoting = (
                f"line {line}, key {_shown(key)}{inside}: {quoting}" if key else f"line {line}: {quoting}"
            )
        self.hint = hint


_Show = Callable[[str], str]


def _unsaid(_: str) -> str:
    return "(not shown)"


def _require_genuine(name: str, mapping: MappingFile) -> None:
    """Refuse what only happens to be laid out like a mapping."""
    hint = f"A mapping file ends in {', '.join(_SUFFIXES)} and names modules, classes, types or tensors only"
    if not name.endswith(_SUFFIXES) or name.startswith("."):
        raise _WrongError("it is not called like a mapping file", hint=hint)
    for entry in mapping.entries:
        for said in (entry.target, *entry.golden, entry.scope or "x"):
            if not _NAME.fullmatch(said):
                raise _WrongError("it says what is no name of a module or tensor", line=entry.line, hint=hint)
            if _SECRET.search(said):
                raise _WrongError("it seems to hold a secret", line=entry.line, hint=hint)
    if not _IS_GENUINE[mapping.kind](mapping.entries):
        raise _WrongError("it does not look like a mapping file", hint=hint)


def _names_classes(entries: Sequence[MappingEntry]) -> bool:
    """Tell a layer mapping: every section is a class, and one of them can be nothing else."""
    scopes = {entry.scope for entry in entries}
    return all(map(_CLASS.fullmatch, scopes)) and any(map(_CLASS_OF_WORDS.fullmatch, scopes))


def _names_cells(entries: Sequence[MappingEntry]) -> bool:
    """Tell a cell mapping: one entry at least has modules with their classes, or calls, on both sides."""
    return any(all(map(_CELL.fullmatch, (entry.target, *entry.golden))) for entry in entries)


def _names_types(entries: Sequence[MappingEntry]) -> bool:
    """Tell an operator mapping: all types are classes, or outputs of such."""
    return all(_TYPE.fullmatch(said) for entry in entries for said in (entry.target, *entry.golden))


_IS_GENUINE: Final[Mapping[MappingKind, Callable[[Sequence[MappingEntry]], bool]]] = {
    MappingKind.LAYER: _names_classes,
    MappingKind.CELL: _names_cells,
    MappingKind.OPERATOR: _names_types,
    # That all of its entries name calls or tensors was asked before.
    MappingKind.DATA: lambda _: True,
}


def _read_text(path: Path, within: Sequence[Path] | None) -> str:
    try:
        return read_regular(path, within=within, most=LARGEST_FILE).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(f"is no text in UTF-8 (byte {error.start})", path=path) from error
    except OutsideError as error:
        raise PathOutsideRootsError(error.reason, hint="Choose a file below one of them") from error
    except RefusedError as error:
        raise SettingsError(f"is no mapping file: {error.reason}", path=path) from error
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
                    partial(_names_no_tensor, said),
                    line=entry.line,
                    key=entry.target,
                    hint="Write names as Functional.linear.0.forward.input.0",
                )
    return MappingFile(name, MappingKind.DATA, entries)


def _compose(text: str) -> yaml.Node:
    try:
        _refuse_bombs(text)
        root = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        problem = getattr(error, "problem", None)
        known = problem in _SAID_OF_YAML
        reason = f"is neither YAML nor JSON: {problem}" if known else "is neither YAML nor JSON"
        line = 0 if mark is None else mark.line + 1
        raise _WrongError(reason, line=line) from error
    if root is None:
        raise _WrongError("the mapping file is empty")
    return root


def _refuse_bombs(text: str) -> None:
    """Refuse aliases, by which a short text becomes an endless one, and deep nesting, before it is built."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            raise _WrongError(partial(_is_alias, str(event.anchor)), line=_line(event))
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST_LEVEL:
            raise _WrongError("is nested too deeply for a mapping", line=_line(event))


def _items(node: yaml.Node, within: str = "") -> _Scalars:
    """Return keys and values of a mapping; each key is a text that occurs once."""
    if not isinstance(node, yaml.MappingNode):
        raise _WrongError(partial(_is_no_mapping, node), line=_line(node))
    lines: dict[str, int] = {}
    items: _Scalars = []
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or not key.value.strip():
            raise _WrongError(partial(_is_no_key, key), line=_line(key))
        if key.value in lines:
            first = lines[key.value]
            raise _WrongError(f"is also on line {first}", line=_line(key), key=key.value, scope=within)
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
                raise _WrongError(f"is another name of {top}", line=_line(section), key=scope)
            top, scope = scope, TOP_LAYER
        if _is_nothing(held):
            continue
        if not isinstance(held, yaml.MappingNode):
            raise _WrongError(
                partial(_holds_no_mapping, held),
                line=_line(held),
                key=section.value,
                hint="A layer mapping holds for each class the paths inside it",
            )
        for key, value in _items(held, scope):
            target, golden = _without_class(key.value), _without_class(_text(key, value))
            if not target or not golden:
                raise _WrongError("a path is empty", line=_line(key), key=key.value)
            yield MappingEntry(_line(key), target, (golden,), scope)


def _operator_entries(items: _Scalars) -> Iterator[MappingEntry]:
    for key, value in items:
        held = value.value if isinstance(value, yaml.SequenceNode) else [value]
        types = tuple(_text(key, item) for item in held)
        if not types:
            raise _WrongError("the list is empty", line=_line(key), key=key.value)
        for said in (key.value, *types):
            if not _OPERATOR_TYPE.fullmatch(said):
                raise _WrongError(
                    partial(_is_no_type, said),
                    line=_line(key),
                    key=key.value,
                    hint="A type has letters, digits and _ only",
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
        raise _WrongError("has no value", line=_line(key), key=key.value)
    if not isinstance(value, yaml.ScalarNode):
        _refuse_value(key, value)
    return str(value.value).strip()


def _refuse_value(key: yaml.ScalarNode, value: yaml.Node) -> NoReturn:
    raise _WrongError(partial(_holds_no_name, value), line=_line(value), key=key.value)


def _is_nothing(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and (node.tag.endswith(":null") or not node.value.strip())


def _without_class(path: str) -> str:
    """Cut off a class in brackets, as printed models have it: "model(LlamaModel)" is "model"."""
    return path.partition("(")[0].strip()


def _line(of: yaml.Node | yaml.Event) -> int:
    return of.start_mark.line + 1 if of.start_mark is not None else 0


def _is_alias(name: str, show: _Show) -> str:
    return f"aliases ({show(f'*{name}')}) are not allowed"


def _is_no_type(name: str, show: _Show) -> str:
    return f"{show(name)} is no operator type"


def _names_no_tensor(name: str, show: _Show) -> str:
    return f"{show(name)} names no tensor"


def _holds_no_mapping(node: yaml.Node, show: _Show) -> str:
    return f"holds {_kind(node, show)}, not a mapping"


def _holds_no_name(node: yaml.Node, show: _Show) -> str:
    return f"holds {_kind(node, show)}, not a name"


def _is_no_mapping(node: yaml.Node, show: _Show) -> str:
    return f"{_kind(node, show)} stands where a mapping is expected"


def _is_no_key(node: yaml.Node, show: _Show) -> str:
    return f"the key is {_kind(node, show)}, not a name"


def _kind(node: yaml.Node, show: _Show) -> str:
    if isinstance(node, yaml.ScalarNode):
        return "nothing" if _is_nothing(node) else f"the text {show(node.value)}"
    return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…")
