"""Records that are decoded as types are what they are as any JSON, whatever they are."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from firstdrift.dumps.msprobe.records import RecordReader
from firstdrift.dumps.msprobe.tree import Construct, parse_construct, quick_construct
from firstdrift.dumps.msprobe.typed_records import typed_dump
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.json_file import parse_json
from firstdrift.wording.message import Message

_STATISTICS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["True", "x", 10**400])
)
_TENSORS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["torch.Tensor", "mindspore.Tensor", "torch.Tensor", "Tensor"]),
        "dtype": st.sampled_from(["torch.float32", "BFloat16", None]),
        "shape": st.lists(st.integers(-1, 4), max_size=3) | st.just("[2]"),
        **dict.fromkeys(("Max", "Min", "Mean", "Norm"), _STATISTICS),
        "requires_grad": st.none() | st.booleans() | st.just("yes"),
    },
    optional={"md5": st.sampled_from(["f588", None, 3.25]), "data_name": st.just("a.pt"), "more": st.just(1)},
)
_SCALARS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["int", "float", "bool", "str", "torch.dtype", "slice"]),
        "value": st.none() | st.integers() | st.floats() | st.text(max_size=3) | st.just([1, None]),
    },
    optional={"Max": _STATISTICS},
)
_KEYS = st.sampled_from(["0", "weight", "is_nan", 'a":'])
_LEAVES = st.none() | _TENSORS | _SCALARS
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_KEYS, inner), max_leaves=4
)
_SECTIONS = (
    st.lists(_VALUES, max_size=3) | st.dictionaries(_KEYS, _VALUES, max_size=3) | st.none() | st.booleans()
)
_RECORDS = st.dictionaries(
    st.sampled_from(["input_args", "input_kwargs", "output", "parameters", "is_recompute", "other"]),
    _SECTIONS,
    max_size=3,
)
_DUMPS = st.dictionaries(st.sampled_from(["a.forward", "b.backward", "c"]), _RECORDS, max_size=3)


def _read(name: str, record: object) -> str:
    """Show what is read of a record: as text, where NaN is NaN."""
    here = Path(__file__).parent
    reader, problems = RecordReader(here, Bounds.around(here)), list[Message]()
    tensors, gradients = reader.tensors_of(record, problems), reader.gradients_of(record, problems)
    return f"{name} {tensors} {gradients} {problems}"


@given(_DUMPS, st.sampled_from([None, 1]))
def test_tensors_are_the_same_either_way(data: dict[str, Any], indent: int | None) -> None:
    text = json.dumps({"task": "statistics", "level": "mix", "data": data}, indent=indent)
    content = bytearray(text.encode())
    typed, plain = typed_dump(_read, content), parse_json(text).value
    if typed is None:
        assert content.decode() == text, "left as it was"
    else:
        records = {name: _read(name, record) for name, record in plain["data"].items()}
        assert typed.value == plain | {"data": records}


def _as_given(_name: str, record: object) -> object:
    return record


TENSOR = (
    '{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": NaN, "Min": -Infinity,'
    ' "Mean": 0.5, "Norm": Infinity, "requires_grad": true}'
)


def test_what_msprobe_mostly_writes_is_decoded_as_types() -> None:
    record = f'{{"input_args": [{TENSOR}, {{"type": "int", "value": 3}}, null], "output": [[{TENSOR}]]}}'
    read = typed_dump(_as_given, bytearray(f'{{"task": "statistics", "data": {{"a": {record}}}}}'.encode()))
    assert read is not None
    leaf, number, nothing = read.value["data"]["a"]["input_args"]
    assert (leaf.dtype, leaf.shape, number.type_name, number.value, nothing) == (
        *("torch.float32", (2,), "int", 3),
        None,
    )


def test_what_stands_for_numbers_is_no_text_of_the_file() -> None:
    text = '{"data": {"a": {"output": [{"type": "str", "value": "\x7f"}, {"type": "float", "value": NaN}]}}}'
    content = bytearray(text.encode())
    assert typed_dump(_as_given, content) is None
    assert content.decode() == text


def test_what_is_there_twice_is_left_to_who_says_so() -> None:
    for odd in (
        f'{{"data": {{"a": {{"output": [{TENSOR}]}}, "a": {{}}}}}}',
        f'{{"data": {{"a": {{"output": [{TENSOR}], "output": []}}}}}}',
        f'{{"data": {{"a": {{"output": [{TENSOR[:-1]}, "Max": 1.0}}]}}}}}}',
        '{"data": {}, "data": {}}',
    ):
        content = bytearray(odd.encode())
        assert typed_dump(_as_given, content) is None
        assert content.decode() == odd
        assert parse_json(odd).repeated_keys


_PARENTS = (
    st.none() | st.sampled_from(["", "b", 'x":']) | st.tuples(st.just("b"), st.integers()) | st.integers()
)


@given(st.dictionaries(st.sampled_from(["a", "b", "megatron_micro_step_number"]), _PARENTS))
def test_parents_are_the_same_either_way(recorded: dict[str, Any]) -> None:
    text = json.dumps(recorded)
    read, plain = quick_construct(bytearray(text.encode())), parse_construct(parse_json(text).value)
    construct = plain if read is None else read.value
    assert isinstance(construct, Construct)
    assert (construct.parents, construct.micro_steps, construct.problems) == (
        *(plain.parents, plain.micro_steps),
        plain.problems,
    )


def test_equal_contents_are_read_once() -> None:
    text = '{"a": null, "b": "a"}'
    first, again = quick_construct(bytearray(text.encode())), quick_construct(bytearray(text.encode()))
    assert first is not None
    assert again is not None
    assert first.value is again.value
    assert quick_construct(bytearray(b'{"a": null, "a": null}')) is None
