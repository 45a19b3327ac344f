"""The registry of operators and modules: what each is, whatever a framework or a model calls it.

    operators.toml   by what is called: Functional.linear, aten.addmm, LinearOperation, ColumnParallelLinear
    modules.toml     by the last part of a path: q_proj, wq, to_q; and by what lies around it

Both are read once, when first asked for, and checked: an unknown key, a missing kind and a name that two
entries claim are errors. `recognise.py`, `properties.py`, `fused.py` and `paths.py` ask it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import Struct

from firstdrift.groups import positions
from firstdrift.operators.kinds import ErrorModel, OpKind, snake_case
from firstdrift.tables import tables_of

PARAMETERS: Final = frozenset({"weight", "bias", "running_mean", "running_var", "gamma", "beta"})
"""Roles of arguments that are learned; called so, an argument of any operator is one."""

_OPERATORS: Final = "operators.toml"
_MODULES: Final = "modules.toml"
_MOST_REMEMBERED: Final = 1 << 12

_Entry = TypeVar("_Entry", "Operator", "Module")


class RegistryError(ValueError):
    """The registry contradicts itself, or has what it cannot have."""


class Operator(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An operator, or a class of modules that does one thing.

    Attributes:
        id: its key in the registry.
        kind: what it does.
        aliases: what it is called, by framework.
        words: regular expression for what else it may be called, looked for in names in snake case.
        arguments: roles of its arguments in order, by framework.
        error: how it turns errors of its inputs into those of its output, if that is known.
        is_product: it multiplies by a matrix, in a format that may be coarser than its dtype.
        embeds: it turns ids into vectors; `of_positions`: it is about positions, not tokens.
        commutative: its arguments may be exchanged.
        adds_as_well: it adds a second input to what it is called after.
        fills: it writes values such as -infinity on purpose; `unwritten`: it leaves memory as it was;
            `overwrites`: it writes into its first input.
        drops: it leaves out numbers by chance; `drops_elements`: each by itself, and scales the others.
        receives: what it gives comes from other ranks.
        sum_over_ranks: which part of the sum over all ranks each rank is given.
        message: whether a call of it sends to one other rank, receives from one, or does several of these.
        passes_on: its output has the values of its input, in another dtype, shape or layout.
        transposes: its output has them in another order.
        begins_with_norm: it norms what it takes before it does what its kind says.
        is_given: it stands for an input or a constant of a graph.
        call_only: no module is called as torch calls it.
        after_passes: it runs after the last pass of a step.
        elewise_types: values of `elewiseType` by which ATB's ElewiseOperation is this one; likewise
            `activation_types` of its ActivationOperation.
    """

    id: str = ""
    kind: OpKind
    aliases: dict[str, tuple[str, ...]] = {}
    words: str = ""
    arguments: dict[str, tuple[str, ...]] = {}
    error: ErrorModel = ErrorModel.NONE
    is_product: bool = False
    embeds: bool = False
    of_positions: bool = False
    commutative: bool = False
    adds_as_well: bool = False
    fills: bool = False
    unwritten: bool = False
    overwrites: bool = False
    drops: bool = False
    drops_elements: bool = False
    receives: bool = False
    sum_over_ranks: Literal["", "whole", "part"] = ""
    message: Literal["", "sends", "receives", "several"] = ""
    passes_on: bool = False
    transposes: bool = False
    begins_with_norm: bool = False
    is_given: bool = False
    call_only: bool = False
    after_passes: bool = False
    elewise_types: tuple[str, ...] = ()
    activation_types: tuple[str, ...] = ()


class Module(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part that many models have, by what it is called there; its keys are explained in modules.toml."""

    id: str = ""
    kind: OpKind
    names: tuple[str, ...] = ()
    bare_names: tuple[str, ...] = ()
    names_like: str = ""
    bare_like: str = ""
    stage: str = ""
    unordered_names: tuple[str, ...] = ()
    order_like: str = ""
    spellings: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    product_words: tuple[str, ...] = ()
    gives_logits: bool = False


class Fusion(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What may be fused into one, in the order of joining, and what follows it; ids of modules."""

    parts: tuple[str, ...]
    whole: str
    followed_by: str = ""


class _OfModules(Struct, frozen=True, forbid_unknown_fields=True):
    """What modules.toml holds."""

    stages: tuple[str, ...]
    stage_of_operators: str
    stage_of_numbers: str
    fusion: tuple[Fusion, ...]
    module: dict[str, Module]
    paths: dict[str, dict[str, str]]


class Registry(Struct, frozen=True):
    """All entries, and by which name each is found.

    Attributes:
        operators: by id, in the order in which their words are asked.
        modules: by id, in the order in which what their names are like is asked.
        by_alias: the operator of each alias, in snake case.
        by_name: the module of each name.
        fusions: what may be fused.
        stages: the place of each stage in the order of execution.
        stage_of_operators: when calls of operators run; likewise `stage_of_numbers` the elements of a list.
        paths: regular expressions for paths, by entry and use.
    """

    operators: Mapping[str, Operator]
    modules: Mapping[str, Module]
    by_alias: Mapping[str, Operator]
    by_name: Mapping[str, Module]
    fusions: tuple[Fusion, ...]
    stages: Mapping[str, int]
    stage_of_operators: str
    stage_of_numbers: str
    paths: Mapping[str, str]


@cache
def registry() -> Registry:
    """Return the registry that firstdrift comes with."""
    folder = Path(__file__).parent
    return read_registry(tables_of(folder / _OPERATORS), tables_of(folder / _MODULES))


def read_registry(operators: object, modules: object) -> Registry:
    """Read a registry from what its two files hold.

    Raises:
        RegistryError: it is what no registry can hold.
    """
    by_id = _with_ids(_converted(operators, dict[str, Operator], _OPERATORS))
    rest = _converted(modules, _OfModules, _MODULES)
    by_module = _with_ids(rest.module)
    found = Registry(
        operators=by_id,
        modules=by_module,
        by_alias=_index((alias, entry) for entry in by_id.values() for alias in aliases_of(entry)),
        by_name=_index((name, entry) for entry in by_module.values() for name in entry.names),
        fusions=rest.fusion,
        stages=positions(rest.stages),
        stage_of_operators=rest.stage_of_operators,
        stage_of_numbers=rest.stage_of_numbers,
        paths={f"{key}.{use}": text for key, uses in rest.paths.items() for use, text in uses.items()},
    )
    _check(found)
    return found


def aliases_of(operator: Operator) -> Iterator[str]:
    """Yield what an operator is called, as names are looked up: in snake case."""
    yield from dict.fromkeys(snake_case(alias) for names in operator.aliases.values() for alias in names)


@lru_cache(_MOST_REMEMBERED)
def operators_named(name: str) -> tuple[Operator, ...]:
    """Return the operators that a name says: by alias first, then by words in the order of the registry.

    A name is the last part of a call or class in snake case, or however a caller wants words looked for.
    """
    known = registry()
    alias = known.by_alias.get(name)
    by_words = tuple(
        entry for entry in known.operators.values() if entry.words and re.search(entry.words, name)
    )
    return by_words if alias is None else (alias, *(entry for entry in by_words if entry is not alias))


@cache
def path_pattern(name: str) -> re.Pattern[str]:
    """Return a regular expression for paths: of what, and for which use of it ("shared_expert.itself")."""
    return re.compile(registry().paths[name])


def _converted(tables: object, kind: Any, file: str) -> Any:  # noqa: ANN401 (a type, and a value of it)
    try:
        return msgspec.convert(tables, kind)
    except msgspec.ValidationError as error:
        raise RegistryError(f"{file}: {error}") from error


def _with_ids(entries: Mapping[str, _Entry]) -> dict[str, _Entry]:
    return {key: msgspec.structs.replace(entry, id=key) for key, entry in entries.items()}


def _index(names: Iterable[tuple[str, _Entry]]) -> dict[str, _Entry]:
    found: dict[str, _Entry] = {}
    for name, entry in names:
        if found.setdefault(name, entry) is not entry:
            raise RegistryError(f"{name!r} is claimed by {found[name].id} and by {entry.id}")
    return found


def _check(known: Registry) -> None:
    """Refuse an entry without a name, and what refers to something that is not there."""
    for operator in known.operators.values():
        _check_operator(operator)
    stages = {known.stage_of_operators, known.stage_of_numbers}
    stages |= {module.stage for module in known.modules.values() if module.stage}
    if unknown := sorted(stages - known.stages.keys()):
        raise RegistryError(f"no stage is called {unknown[0]!r}")
    for module in known.modules.values():
        _check_module(module, known)
    for fusion in known.fusions:
        _check_fusion(fusion, known)


def _check_operator(operator: Operator) -> None:
    if not operator.aliases and not operator.words:
        raise RegistryError(f"the operator {operator.id} has neither aliases nor words")
    if not operator.arguments.keys() <= operator.aliases.keys():
        raise RegistryError(f"{operator.id} has arguments for a framework without an alias")


def _check_fusion(fusion: Fusion, known: Registry) -> None:
    for each in filter(None, (*fusion.parts, fusion.whole, fusion.followed_by)):
        if each not in known.modules:
            raise RegistryError(f"a fusion names the module {each!r}, which is not there")
    if len({len(known.modules[part].spellings) for part in fusion.parts}) != 1:
        raise RegistryError(f"{', '.join(fusion.parts)} are not spelled in equally many ways")


def _check_module(module: Module, known: Registry) -> None:
    if not (module.names or module.names_like or module.product_words):
        raise RegistryError(f"the module {module.id} has no names")
    for listed in ("bare_names", "unordered_names"):
        if strange := sorted(set(getattr(module, listed)) - set(module.names)):
            raise RegistryError(f"{strange[0]!r} in {listed} of {module.id} is not among its names")
    if strange := sorted(set(module.spellings) - known.by_name.keys()):
        raise RegistryError(f"{module.id} is spelled {strange[0]!r}, which is no module's name")
