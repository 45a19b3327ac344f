import re
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from firstdrift.operators import paths
from firstdrift.operators import registry as registry_module
from firstdrift.operators.fused import fusions, parts_of_name
from firstdrift.operators.kinds import OpKind, snake_case
from firstdrift.operators.paths import OPERATOR, stage_of
from firstdrift.operators.recognise import kind_of_type
from firstdrift.operators.registry import (
    RegistryError,
    aliases_of,
    operators_named,
    read_registry,
    registry,
)

OPERATORS = '[add]\nkind = "add"\naliases.torch = ["add"]\n'
MODULES = """
stages = ["first", "last"]
stage_of_operators = "first"
stage_of_numbers = "last"
fusion = []

[module.query]
kind = "linear"
names = ["q_proj"]
stage = "first"

[paths]
"""


def test_every_alias_is_that_of_one_operator() -> None:
    for operator in registry().operators.values():
        for alias in aliases_of(operator):
            assert operators_named(alias)[0] is operator


def test_every_entry_has_an_alias_words_or_a_name() -> None:
    assert all(entry.aliases or entry.words for entry in registry().operators.values())
    assert all(
        entry.names or entry.names_like or entry.product_words for entry in registry().modules.values()
    )


def test_every_name_is_that_of_one_module() -> None:
    for module in registry().modules.values():
        assert all(registry().by_name[name] is module for name in module.names)


def test_every_regular_expression_can_be_used() -> None:
    known = registry()
    expressions = [entry.words for entry in known.operators.values()]
    expressions += [
        getattr(entry, key) for entry in known.modules.values() for key in ("names_like", "bare_like")
    ]
    for expression in (*expressions, *known.paths.values()):
        re.compile(expression)


def test_every_pattern_for_paths_is_used() -> None:
    source = Path(paths.__file__).read_text(encoding="utf-8")
    assert set(re.findall(r'"([a-z_]+\.[a-z_]+)"', source)) == set(registry().paths)


def test_every_alias_does_what_its_entry_says() -> None:
    for operator in registry().operators.values():
        for alias in (alias for names in operator.aliases.values() for alias in names):
            assert kind_of_type(alias) is operator.kind, alias


def test_reading_the_registry_takes_little_more_than_parsing_its_files() -> None:
    folder = Path(registry_module.__file__).parent
    files = [(folder / name).read_text("utf-8") for name in ("operators.toml", "modules.toml")]

    def seconds(what: Callable[[], object]) -> float:
        times = []
        for _ in range(7):
            start = time.process_time()
            what()
            times.append(time.process_time() - start)
        return min(times)

    assert seconds(registry.__wrapped__) < 4 * seconds(lambda: list(map(tomllib.loads, files)))


@pytest.mark.parametrize(
    ("operators", "modules", "reason"),
    [
        (OPERATORS + 'speed = "fast"\n', MODULES, "unknown field `speed`"),
        ('[add]\naliases.torch = ["add"]\n', MODULES, "missing required field `kind`"),
        ('[add]\nkind = "addition"\naliases.torch = ["add"]\n', MODULES, "Invalid enum value 'addition'"),
        ('[add]\nkind = "add"\n', MODULES, "the operator add has neither aliases nor words"),
        (
            OPERATORS + '[sum]\nkind = "other"\naliases.ge = ["Add"]\n',
            MODULES,
            "'add' is claimed by add and by sum",
        ),
        (
            OPERATORS + 'arguments.aten = ["input"]\n',
            MODULES,
            "add has arguments for a framework without an alias",
        ),
        (OPERATORS, MODULES.replace('stage = "first"', 'stage = "second"'), "no stage is called 'second'"),
        (
            OPERATORS,
            MODULES.replace('stage = "first"', 'bare_names = ["q"]'),
            "'q' in bare_names of query is not among its names",
        ),
        (
            OPERATORS,
            MODULES.replace('stage = "first"', 'spellings = ["q"]'),
            "query is spelled 'q', which is no module's name",
        ),
        (
            OPERATORS,
            MODULES.replace("fusion = []", 'fusion = [{parts = ["query"], whole = "qkv"}]'),
            "a fusion names the module 'qkv', which is not there",
        ),
        ('add = "add"\n', MODULES, "operators.toml: "),
    ],
)
def test_a_registry_that_contradicts_itself_is_refused_with_the_reason(
    operators: str, modules: str, reason: str
) -> None:
    assert set(read_registry(tomllib.loads(OPERATORS), tomllib.loads(MODULES)).by_alias) == {"add"}
    with pytest.raises(RegistryError, match=re.escape(reason)):
        read_registry(tomllib.loads(operators), tomllib.loads(modules))


def test_a_name_of_two_operators_is_of_the_first_kind_and_has_the_properties_of_both() -> None:
    assert [entry.id for entry in operators_named(snake_case("LayerNormLinear"))] == [
        "norm_and_linear",
        "layer_norm",
        "norm",
        "linear",
    ]
    assert kind_of_type("LayerNormLinear") is OpKind.LINEAR


def test_parts_of_a_fusion_are_spelled_alike() -> None:
    assert ("q_proj", "k_proj", "v_proj") in fusions()[0].parts
    assert ("w1", "w3") in parts_of_name("w13")


def test_names_tell_when_siblings_run() -> None:
    labels = ["input_layernorm", "q_proj", "k_proj", "v_proj", OPERATOR, "o_proj", "norm", "lm_head"]
    stages = [stage_of(label) for label in labels]
    assert None not in stages
    assert stages == sorted(stages, key=lambda stage: stage or (0, 0))
    assert (stage_of("2") or (0, 0)) < (stage_of("10") or (0, 0))
    assert stage_of("frobnicate") is None
