"""Read the files in which people say what corresponds to what, as msprobe and msit write them.

layer_mapping   TransformerLayer:                          inside a module of this class (or TopLayer)
                  self_attention: self_attn                target path: golden path
                  flash_attention_score: softmax           or target operator: golden operator
data_mapping    Functional.add.0.forward.output.0: Torch.add.0.forward.output.0
cell_mapping    fc1.Dense: fc1.Linear                      a module and its class, or part of that
api_mapping     - ms_api: Functional.abs                   an operator, and which of its tensors
                  pt_api: Torch.abs                        is which: ms_args: [0], pt_args: [1]
op_mapping      {"LinearOperation_outtensor0": ["Linear_output_0"]}    types
view_mapping    - target: Module.qkv.Linear.forward.0.output.0         tensors, and how they are seen
                  golden: [Module.q.Linear.forward.0.output.0, ...]
                  view: [concatenated]
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, filterfalse
from pathlib import Path
from typing import Final

import yaml
from msgspec.structs import replace

from firstdrift.errors import PathOutsideRootsError, SettingsError
from firstdrift.files import OutsideError, RefusedError, read_regular
from firstdrift.matching.manual.mapping import (
    TOP_LAYER,
    VIEW,
    MappingEntry,
    MappingFile,
    MappingKind,
    split_item,
    split_tensor,
)
from firstdrift.matching.manual.thresholds import DEEPEST_LEVEL, LARGEST_FILE, LONGEST_SHOWN, MOST_PAIRED
from firstdrift.model.names import parse_name
from firstdrift.paths import inside
from firstdrift.wording.message import Message

_OPERATOR_FILE: Final = "op_mapping_file.json"


_QUOTED: Final = "matching.mapping.quoted"
"""The id of what a message quotes of the file, which not everybody may see."""

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

_FAULTS_OF_YAML: Final = {
    "mapping values are not allowed in this context": "values_not_allowed",
    "could not find expected ':'": "colon_expected",
    "did not find expected key": "key_expected",
    "did not find expected node content": "content_expected",
    "did not find expected ',' or '}'": "brace_expected",
    "did not find expected ',' or ']'": "bracket_expected",
    "did not find expected '-' indicator": "dash_expected",
    "found character that cannot start any token": "strange_character",
    "found a tab character that violates indentation": "tab",
    "found unexpected end of stream": "unexpected_end",
    "found unexpected document indicator": "unexpected_document",
    "block sequence entries are not allowed in this context": "entries_not_allowed",
}
"""What the parser says of a file without quoting it, and what we say then."""

_API_KEYS: Final = ("ms_api", "pt_api")
"""What an item of an API mapping calls the operator of the target and of the golden dump."""

_API_TENSORS: Final = (
    ("ms_args", "pt_args", "input"),
    ("ms_output", "pt_output", "output"),
    ("ms_outputs", "pt_outputs", "output"),
    ("ms_parameters", "pt_parameters", "parameter"),
    ("ms_parameters_grad", "pt_parameters_grad", "gradient"),
)
"""The lists of tensors of each, and what these are; outputs are spelled in both ways that msprobe does."""

_VIEW_KEYS: Final = ("target", "golden")
"""What an item of a view mapping calls the tensors of the two dumps; it may say view, and how for people."""

_UNKNOWN_KEY: Final = {"api": "matching.mapping.unknown_key", "view": "matching.mapping.unknown_view_key"}
"""The id of what is said of a key that no item of such a mapping has."""

_TOP_LAYER_NAMES: Final = (TOP_LAYER, "Cell")
_OPERATOR_TYPE: Final = re.compile(r"[A-Za-z0-9_]+")

_Scalars = list[tuple[yaml.ScalarNode, yaml.Node]]

_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_mapping_text(path: Path, *, within: Sequence[Path] | None = None) -> tuple[Path, str]:
    """Read the text of a mapping file, or of the one in a directory of msit's; return where it was, too.

    Both must lie below one of the real paths of `within`; None: wherever they lie.

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

    Unless whoever sees the answer has the text anyway (`may_quote`), what may be anything (settings with
    passwords are YAML, too) must be a mapping beyond doubt, and errors say lines and kinds only.

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
        self, problem: Message, *, line: int = 0, key: str = "", scope: str = "", hint: Message | None = None
    ) -> None:
        """Take a problem, in which what the file says is `_quoted`, and where it is."""
        super().__init__(problem.id)
        self.quoting = _located(problem, line, key, scope)
        self.plain = _located(_without_quotes(problem), line, "", "")
        self.hint = hint


def _located(problem: Message, line: int, key: str, scope: str) -> Message:
    if not line:
        return problem
    if not key:
        return Message.of("matching.mapping.at_line", line=line, problem=problem)
    if not scope:
        return Message.of("matching.mapping.at_key", line=line, key=_quoted(key), problem=problem)
    where = {"key": _quoted(key), "scope": _quoted(scope), "problem": problem}
    return Message.of("matching.mapping.at_key_of_scope", line=line, **where)


def _quoted(text: str) -> Message:
    """Quote what a file says."""
    shown = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
    return Message.of(_QUOTED, text=repr(shown))


def _without_quotes(message: Message) -> Message:
    """Leave out what a message quotes."""
    if message.id == _QUOTED:
        return Message.of("matching.mapping.not_shown")
    arguments = {
        name: _without_quotes(value) if isinstance(value, Message) else value
        for name, value in message.arguments.items()
    }
    return Message(message.id, arguments)


def _names(entry: MappingEntry) -> tuple[str, ...]:
    return entry.target, *entry.golden


def _require_genuine(file: str, mapping: MappingFile) -> None:
    """Refuse what only happens to be laid out like a mapping; what says nothing harms nobody."""
    hint = Message.of("matching.hint.mapping_file", suffixes=_SUFFIXES)
    if not file.endswith(_SUFFIXES) or file.startswith("."):
        raise _WrongError(Message.of("matching.mapping.other_suffix"), hint=hint)
    if not mapping.entries:
        return
    names = ((entry, name) for entry in mapping.entries for name in (*_names(entry), entry.scope or "x"))
    for entry, name in names:
        if not _NAME.fullmatch(name):
            raise _WrongError(Message.of("matching.mapping.no_name"), line=entry.line, hint=hint)
        if _SECRET.search(name):
            raise _WrongError(Message.of("matching.mapping.secret"), line=entry.line, hint=hint)
    if not _IS_GENUINE[mapping.kind](mapping.entries):
        raise _WrongError(Message.of("matching.mapping.unlike_mapping"), hint=hint)


def _names_classes(entries: Sequence[MappingEntry]) -> bool:
    """Tell a layer mapping: every section is a class, and one of them can be nothing else."""
    scopes = {entry.scope for entry in entries}
    return all(map(_CLASS.fullmatch, scopes)) and any(map(_CLASS_OF_WORDS.fullmatch, scopes))


def _names_cells(entries: Sequence[MappingEntry]) -> bool:
    """Tell a cell mapping: one entry at least has modules with their classes, or calls, on both sides."""
    return any(all(map(_CELL.fullmatch, _names(entry))) for entry in entries)


def _names_types(entries: Sequence[MappingEntry]) -> bool:
    """Tell an operator mapping: all types are classes, or outputs of such."""
    return all(map(_TYPE.fullmatch, chain.from_iterable(map(_names, entries))))


_IS_GENUINE: Final[Mapping[MappingKind, Callable[[Sequence[MappingEntry]], bool]]] = {
    MappingKind.LAYER: _names_classes,
    MappingKind.CELL: _names_cells,
    MappingKind.OPERATOR: _names_types,
    # That all of its entries name calls or tensors was asked before.
    MappingKind.DATA: lambda _: True,
    # That each names two operators by keys of its own, or tensors, likewise.
    MappingKind.API: lambda _: True,
    MappingKind.VIEW: lambda _: True,
}


def _read_text(path: Path, within: Sequence[Path] | None) -> str:
    try:
        return read_regular(path, within=within, most=LARGEST_FILE).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(Message.of("matching.mapping.no_utf8", byte=error.start), path=path) from error
    except OutsideError as error:
        hint = Message.of("matching.hint.below_one")
        raise PathOutsideRootsError(error.message, hint=hint) from error
    except RefusedError as error:
        reason = Message.of("matching.mapping.no_mapping_file", why=error.message)
        raise SettingsError(reason, path=path) from error
    except OSError as error:
        reason = Message.of("matching.mapping.not_read", why=str(error.strerror))
        raise SettingsError(reason, path=path) from error
    except ValueError as error:
        raise SettingsError(Message.of("matching.mapping.no_path"), path=repr(path)) from error


def _parse(name: str, text: str) -> MappingFile:
    is_json = text.lstrip().startswith("{")
    root = _compose(text.replace("\t", " ") if is_json else text)
    if _lists_mappings(root):
        return _parse_list(name, root)
    items = _items(root)
    if not items:
        return MappingFile(name, MappingKind.LAYER, ())
    layouts = {type(value) for _, value in items}
    if yaml.MappingNode in layouts:
        return MappingFile(name, MappingKind.LAYER, tuple(_layer_entries(items)))
    if yaml.SequenceNode in layouts or (is_json and _has_types_only(items)):
        return MappingFile(name, MappingKind.OPERATOR, tuple(_operator_entries(items)))
    entries = tuple(MappingEntry(_line(key), key.value, (_text(key, value),)) for key, value in items)
    if not any(_is_node_or_tensor(entry.target) for entry in entries):
        return MappingFile(name, MappingKind.CELL, entries)
    for entry in entries:
        _require_tensors(entry.line, entry.target, _names(entry))
    return MappingFile(name, MappingKind.DATA, entries)


def _require_tensors(line: int, key: str, names: Iterable[str]) -> None:
    _refuse(line, key, filterfalse(_is_node_or_tensor, names))


def _require_named(line: int, key: str, names: Iterable[str]) -> None:
    _refuse(line, key, (name for name in names if split_tensor(name)[1] is None))


def _refuse(line: int, key: str, names: Iterable[str]) -> None:
    for name in names:
        raise _WrongError(
            Message.of("matching.mapping.names_no_tensor", name=_quoted(name)),
            line=line,
            key=key,
            hint=Message.of("matching.hint.tensor_names"),
        )


def _compose(text: str) -> yaml.Node:
    try:
        _refuse_bombs(text)
        root = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = 0 if mark is None else mark.line + 1
        raise _WrongError(_no_yaml(getattr(error, "problem", None)), line=line) from error
    if root is None:
        raise _WrongError(Message.of("matching.mapping.empty"))
    return root


def _no_yaml(problem: str | None) -> Message:
    fault = _FAULTS_OF_YAML.get(problem or "")
    if fault is None:
        return Message.of("matching.mapping.no_yaml")
    return Message.of("matching.mapping.no_yaml_as", why=Message.of(f"matching.yaml.{fault}"))


def _refuse_bombs(text: str) -> None:
    """Refuse aliases, by which a short text becomes an endless one, and deep nesting, before it is built."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            alias = Message.of("matching.mapping.alias", alias=_quoted(f"*{event.anchor}"))
            raise _WrongError(alias, line=_line(event))
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST_LEVEL:
            raise _WrongError(Message.of("matching.mapping.too_deep"), line=_line(event))


def _items(node: yaml.Node, within: str = "") -> _Scalars:
    """Return keys and values of a mapping; each key is a text that occurs once."""
    if not isinstance(node, yaml.MappingNode):
        raise _WrongError(Message.of("matching.mapping.mapping_expected", kind=_kind(node)), line=_line(node))
    lines: dict[str, int] = {}
    items: _Scalars = []
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or not key.value.strip():
            raise _WrongError(Message.of("matching.mapping.key_is_no_name", kind=_kind(key)), line=_line(key))
        if key.value in lines:
            twice = Message.of("matching.mapping.twice", first=lines[key.value])
            raise _WrongError(twice, line=_line(key), key=key.value, scope=within)
        lines[key.value] = _line(key)
        items.append((key, value))
    return items


def _layer_entries(items: _Scalars) -> Iterator[MappingEntry]:
    top: str | None = None
    for section, held in items:
        scope = section.value
        if scope in _TOP_LAYER_NAMES:
            if top is not None:
                problem = Message.of("matching.mapping.other_name", of=top)
                raise _WrongError(problem, line=_line(section), key=scope)
            top, scope = scope, TOP_LAYER
        if not _is_nothing(held):
            yield from _section_entries(section, held, scope)


def _section_entries(section: yaml.ScalarNode, held: yaml.Node, scope: str) -> Iterator[MappingEntry]:
    if not isinstance(held, yaml.MappingNode):
        raise _WrongError(
            Message.of("matching.mapping.holds_no_mapping", kind=_kind(held)),
            line=_line(held),
            key=section.value,
            hint=Message.of("matching.hint.layer_mapping"),
        )
    for key, value in _items(held, scope):
        target, golden = _without_class(key.value), _without_class(_text(key, value))
        if not (target and golden):
            raise _WrongError(Message.of("matching.mapping.empty_path"), line=_line(key), key=key.value)
        yield MappingEntry(_line(key), target, (golden,), scope)


def _lists_mappings(root: yaml.Node) -> bool:
    """Tell an API or view mapping: a list of which each item is a mapping."""
    is_list = isinstance(root, yaml.SequenceNode) and bool(root.value)
    return is_list and isinstance(root.value[0], yaml.MappingNode)


def _parse_list(name: str, root: yaml.Node) -> MappingFile:
    """Read a view mapping, which names targets, or an API mapping."""
    if _VIEW_KEYS[0] in (key.value for key, _ in root.value[0].value):
        return MappingFile(name, MappingKind.VIEW, tuple(_view_entries(root)))
    return MappingFile(name, MappingKind.API, tuple(_api_entries(root)))


def _api_entries(root: yaml.Node) -> Iterator[MappingEntry]:
    """Read pairs of operators, each with the tensors that correspond to each other."""
    lists = tuple(chain.from_iterable(pair[:2] for pair in _API_TENSORS))
    for item in root.value:
        held = _held(item, _API_KEYS, lists, "api")
        (target, golden), line = (_text(*held[key]) for key in _API_KEYS), _line(item)
        yield MappingEntry(line, target, (golden,))
        for theirs, ours, role in _API_TENSORS:
            first, second = (_listed_keys(held.get(key)) for key in (theirs, ours))
            if len(first) != len(second):
                counts = Message.of("matching.mapping.unequal_lists", first=theirs, second=ours)
                raise _WrongError(counts, line=line, key=target)
            for one, other in zip(first, second, strict=True):
                yield MappingEntry(line, f"{role}.{one}", (f"{role}.{other}",), target)


def _held(
    item: yaml.Node, needed: tuple[str, ...], possible: tuple[str, ...], kind: str
) -> dict[str, tuple[yaml.ScalarNode, yaml.Node]]:
    """Return what an item of a list says by its keys, of which it needs some and may have others."""
    held = {key.value: (key, value) for key, value in _items(item)}
    hint = Message.of(f"matching.hint.{kind}_mapping")
    for key in filterfalse(held.__contains__, needed):
        raise _WrongError(Message.of("matching.mapping.no_key", key=key), line=_line(item), hint=hint)
    for name in filterfalse((*needed, *possible).__contains__, held):
        unknown = held[name][0]
        raise _WrongError(Message.of(_UNKNOWN_KEY[kind]), line=_line(unknown), key=name, hint=hint)
    return held


def _view_entries(root: yaml.Node) -> Iterator[MappingEntry]:
    """Read which tensors are seen as each other, and how."""
    for item in root.value:
        held = _held(item, _VIEW_KEYS, ("view", "how"), "view")
        line, view = _line(item), _listed_keys(held.get("view"))
        target, golden = (_listed_keys(held[key]) for key in _VIEW_KEYS)
        for step in filterfalse(VIEW.fullmatch, view):
            no_view = Message.of("matching.mapping.no_view", view=_quoted(step))
            raise _WrongError(no_view, line=line, hint=Message.of("matching.hint.view_mapping"))
        if not (target and golden):
            raise _WrongError(Message.of("matching.mapping.empty_list"), line=line)
        if len(target) * len(golden) > MOST_PAIRED:
            many = {"target": len(target), "golden": len(golden), "most": MOST_PAIRED}
            raise _WrongError(Message.of("matching.mapping.many_in_item", **many), line=line)
        _require_named(line, target[0], (*target, *golden))
        yield from (MappingEntry(line, name, golden, view=view) for name in target)


def _listed_keys(item: tuple[yaml.ScalarNode, yaml.Node] | None) -> tuple[str, ...]:
    """Return the keys of tensors that a list names: nothing, if there is no list."""
    if item is None or _is_nothing(item[1]):
        return ()
    key, value = item
    held = value.value if isinstance(value, yaml.SequenceNode) else [value]
    return tuple(_text(key, one) for one in held)


def _operator_entries(items: _Scalars) -> Iterator[MappingEntry]:
    for key, value in items:
        held = value.value if isinstance(value, yaml.SequenceNode) else [value]
        types = tuple(_text(key, item) for item in held)
        if not types:
            raise _WrongError(Message.of("matching.mapping.empty_list"), line=_line(key), key=key.value)
        for name in filterfalse(_OPERATOR_TYPE.fullmatch, (key.value, *types)):
            raise _WrongError(
                Message.of("matching.mapping.no_type", name=_quoted(name)),
                line=_line(key),
                key=key.value,
                hint=Message.of("matching.hint.types"),
            )
        yield MappingEntry(_line(key), key.value, types)


def _has_types_only(items: _Scalars) -> bool:
    texts = [node.value for item in items for node in item if isinstance(node, yaml.ScalarNode)]
    return all(map(_OPERATOR_TYPE.fullmatch, texts))


def _is_node_or_tensor(name: str) -> bool:
    parts = parse_name(name)
    return split_item(name)[1] is not None or parts.direction != "none" or parts.holds_gradients


def _text(key: yaml.ScalarNode, value: yaml.Node) -> str:
    if _is_nothing(value):
        raise _WrongError(Message.of("matching.mapping.no_value"), line=_line(key), key=key.value)
    if not isinstance(value, yaml.ScalarNode):
        problem = Message.of("matching.mapping.holds_no_name", kind=_kind(value))
        raise _WrongError(problem, line=_line(value), key=key.value)
    return str(value.value).strip()


def _is_nothing(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and (node.tag.endswith(":null") or not node.value.strip())


def _without_class(path: str) -> str:
    """Cut off a class in brackets, as printed models have it: "model(LlamaModel)" is "model"."""
    return path.partition("(")[0].strip()


def _line(of: yaml.Node | yaml.Event) -> int:
    return of.start_mark.line + 1 if of.start_mark is not None else 0


def _kind(node: yaml.Node) -> Message:
    if isinstance(node, yaml.ScalarNode):
        nothing = Message.of("matching.yaml.nothing")
        return nothing if _is_nothing(node) else Message.of("matching.yaml.text", text=_quoted(node.value))
    return Message.of(
        "matching.yaml.list" if isinstance(node, yaml.SequenceNode) else "matching.yaml.mapping"
    )
