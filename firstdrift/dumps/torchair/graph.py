"""Read the text of a graph that TorchAir hands to the graph engine: which operators it has, and whence.

    op { name: "Add_1" type: "Add" input: "MatMul:0" input: "arg2_1:0"
         output_desc { attr { key: "_fx_tensor_name" value { s: "add-aten.add.Tensor.OUTPUT.0" } } } }

An output may bear the name of the tensor of the FX graph that it is. The engine fuses operators and names
the result by all of them ("Add_1Sigmoid_1Mul_1"): the text is what takes such a name apart.
"""

import re
from collections.abc import Container, Iterator, Mapping
from itertools import chain
from typing import Any, TypeAlias

from msgspec import Struct

from firstdrift.dumps.containers.contents import DamagedError
from firstdrift.groups import firsts, gathered
from firstdrift.model.node import Source
from firstdrift.operators.properties import hands_on, is_given, passes_on, transposes
from firstdrift.wording.message import Message

_TOKEN = re.compile(
    r"""(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<mark>[{}<>:])|(?P<word>[^\s{}<>:,;"'\[\]#]+)"""
    r"""|\#[^\n]*|(?P<odd>["'])"""
)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_FX_NAME = re.compile(r"(?P<node>.+)\.OUTPUT\.(?P<index>[0-9]{1,9})", re.DOTALL | re.ASCII)
_INPUT = re.compile(r"(?P<name>.+):(?P<index>[0-9]{1,9})", re.DOTALL | re.ASCII)
_BEGINS, _ENDS = ("{", "<"), ("}", ">")
_FX_ATTRIBUTE = "_fx_tensor_name"
_DEEPEST = 100
_LONGEST_NAME = 2048
_LONGEST_PART = 512
"""Lengths of names that are taken apart, and of the names that they may be made of."""


Output: TypeAlias = tuple[str, int]
"""An operator by name, and which of its outputs; likewise for nodes of the FX graph."""

Input: TypeAlias = tuple[str, int]
"""An operator by name, and which of its inputs."""

_Label: TypeAlias = tuple[str | None, tuple[str, str]]
"""A node, and which of its tensors a dumped one is: label there, label here; None for no node."""


class GraphOperator(Struct, frozen=True):
    """An operator of the graph.

    Attributes:
        name: unique in the graph.
        type_name: "MatMul".
        inputs: which outputs of other operators it takes; control inputs are left out.
        fx_outputs: for an output that bears its name, the output of a node of the FX graph that it is.
    """

    name: str
    type_name: str
    inputs: tuple[Output, ...]
    fx_outputs: Mapping[int, Output]

    def taken(self) -> list[tuple[Input, Output]]:
        """Return its inputs, and the outputs of others that they are."""
        return [((self.name, place), tensor) for place, tensor in enumerate(self.inputs)]

    @property
    def fx_nodes(self) -> list[str]:
        """The nodes of the FX graph whose outputs it gives."""
        return firsts(self.fx_outputs.values())


class Graph(Struct, frozen=True):
    """A graph.

    Attributes:
        operators: by name.
        takers: for each operator, which of its outputs others take, and who.
        lengths: of the names that others may be made of, longest first.
        problem: what is wrong with its text; None if nothing is.
    """

    operators: Mapping[str, GraphOperator]
    takers: Mapping[str, list[tuple[int, str]]]
    lengths: tuple[int, ...]
    problem: Message | None

    def parts(self, name: str) -> tuple[str, ...]:
        """Return the operators that an operator of this name consists of; () if that is not known.

        The name of what was fused is the names of its parts, one after the other; longer names are tried
        first.
        """
        if name in self.operators:
            return (name,)
        return _split(name, self.operators, self.lengths) if len(name) <= _LONGEST_NAME else ()

    def sources(
        self, parts: tuple[str, ...], inputs: int, outputs: int, dumped: Container[str]
    ) -> tuple[Source, ...]:
        """Return what a dumped operator was made from: nodes of the FX graph, and the parts it was fused of.

        `inputs` and `outputs` of it were dumped; an operator that is not `dumped` was folded into another.
        """
        operators = [self.operators[part] for part in parts]
        fx_nodes = chain.from_iterable(operator.fx_nodes for operator in operators)
        nodes = dict.fromkeys((*fx_nodes, *(parts if len(parts) > 1 else ())))
        labels = chain(
            self._input_labels(self._taken(operators, inputs), dumped),
            self._output_labels(self._given(operators, outputs)),
        )
        made = gathered(labels)
        return tuple(Source(node, tuple(dict(made[node]).items())) for node in nodes)

    def _input_labels(self, taken: list[Input], dumped: Container[str]) -> Iterator[_Label]:
        for at, (name, place) in enumerate(taken):
            for node in (name, self._fx_taker(self.operators[name], place, dumped)):
                yield node, (f"input.{at}", f"input.{place}")

    def _output_labels(self, given: list[Output]) -> Iterator[_Label]:
        for at, (name, place) in enumerate(given):
            fx_output = self.operators[name].fx_outputs.get(place, (name, place))
            for node, of_node in ((name, place), fx_output):
                yield node, (f"output.{at}", f"output.{of_node}")

    def _taken(self, operators: list[GraphOperator], dumped: int) -> list[Input]:
        """Say of each dumped input which operator takes it, and as which input."""
        outer = _taken_from_outside(operators)
        takers = firsts(outer)
        if len(operators) == 1 or len(outer) == dumped:
            return takers[:dumped]
        by_tensor = gathered((tensor, taker) for taker, tensor in outer)
        if len(by_tensor) == dumped:  # what two of the parts take is one input of the whole
            return [of_tensor[0] for of_tensor in by_tensor.values()]
        return [taker for taker in takers if taker[0] == operators[0].name][:dumped]

    def _given(self, operators: list[GraphOperator], dumped: int) -> list[Output]:
        """Say of each dumped output which operator gives it, and as which output."""
        inside = {operator.name for operator in operators}
        outer: list[Output] = []
        for operator in operators:
            takers = gathered(self.takers.get(operator.name, ()))
            inner = {at for at, by in takers.items() if inside.issuperset(by)}
            outer += [(operator.name, at) for at in sorted({0, *operator.fx_outputs, *takers} - inner)]
        if len(operators) > 1 and len(outer) == dumped:
            return outer
        return [(operators[-1].name, at) for at in range(dumped)]

    def _fx_taker(self, operator: GraphOperator, place: int, dumped: Container[str]) -> str | None:
        """Return the node of the FX graph that has an input of an operator as its own; None if none has.

        A node that became several operators hands values from one to the next that it never took. One that
        became none, because it only hands its value on, has given its name to the operator before it. And
        an operator that a transposition was folded into takes what was to be transposed.
        """
        if len(set(operator.fx_nodes)) != 1:
            return None
        node = operator.fx_nodes[0]
        is_folded = hands_on(node) and not passes_on(operator.type_name)
        is_taken = not is_folded and self._comes_from_others(operator.inputs[place], node, dumped)
        return node if is_taken else None

    def _comes_from_others(self, tensor: Output, node: str, dumped: Container[str]) -> bool:
        """Tell whether a tensor was made outside a node of the FX graph."""
        for _ in range(_DEEPEST):
            giver = self.operators.get(tensor[0])
            if giver is None or is_given(giver.type_name):
                return True
            if transposes(giver.type_name) and giver.name not in dumped:
                return False
            if giver.fx_outputs:
                return node not in giver.fx_nodes
            if not passes_on(giver.type_name) or not giver.inputs:
                return False
            tensor = giver.inputs[0]
        return False


def _taken_from_outside(operators: list[GraphOperator]) -> list[tuple[Input, Output]]:
    """Return the inputs of operators that are outputs of others."""
    inside = {operator.name for operator in operators}
    inputs = chain.from_iterable(operator.taken() for operator in operators)
    return [(taker, tensor) for taker, tensor in inputs if tensor[0] not in inside]


def parse_graph(text: str) -> Graph:
    """Read the text of a graph; of a damaged one, what comes before the damage."""
    operators: dict[str, GraphOperator] = {}
    problem: Message | None = None
    try:
        for operator in map(_operator, _blocks(text, "op")):
            operators.setdefault(operator.name, operator)
    except DamagedError as exc:
        problem = exc.message
    operators.pop("", None)
    takers = gathered(
        (name, (index, operator.name)) for operator in operators.values() for name, index in operator.inputs
    )
    if not operators and problem is None:
        problem = Message.of("dumps.torchair.graph.no_operator")
    lengths = {len(name) for name in operators if len(name) <= _LONGEST_PART}
    return Graph(operators, takers, tuple(sorted(lengths, reverse=True)), problem)


_Block: TypeAlias = list[tuple[str, Any]]
"""The fields of a block in their order: a text, or the fields of a block inside it."""


def _blocks(text: str, wanted: str) -> Iterator[_Block]:
    """Yield the outermost blocks of a name, wherever they lie; what lies around them is passed over."""
    read = _Reading(wanted)
    for token in _TOKEN.finditer(text):
        if token["odd"]:
            raise DamagedError(Message.of("dumps.torchair.graph.open_text"))
        mark, word = token["mark"], token["word"]
        value = word if token["text"] is None else _unquoted(token["text"])
        if mark in _BEGINS:
            read.begin()
        elif mark in _ENDS:
            yield from read.end()
        elif value is not None and read.has_colon:
            read.add(value)
        elif word is not None:
            read.key = word
        read.has_colon = mark == ":"
    if read.depth:
        raise DamagedError(Message.of("dumps.torchair.graph.open_block"))


class _Reading(Struct):
    """Where in a text its reader is, and the blocks of the wanted name that are open there."""

    wanted: str
    key: str = ""
    has_colon: bool = False
    depth: int = 0
    inside: list[_Block] = []

    def begin(self) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise DamagedError(Message.of("dumps.torchair.graph.nested_too_deeply"))
        if self.inside or self.key == self.wanted:
            block: _Block = []
            self.add(block)
            self.inside.append(block)

    def end(self) -> Iterator[_Block]:
        self.depth -= 1
        if self.depth < 0:
            raise DamagedError(Message.of("dumps.torchair.graph.block_without_begin"))
        block = self.inside.pop() if self.inside else None
        if block is not None and not self.inside:
            yield block

    def add(self, value: str | _Block) -> None:
        """Add a field to the innermost block."""
        if self.inside:
            self.inside[-1].append((self.key, value))


def _unquoted(text: str) -> str:
    inner = text[1:-1]
    return _ESCAPE.sub(_unescaped, inner) if "\\" in inner else inner


def _unescaped(match: re.Match[str]) -> str:
    octal, hexadecimal, letter = match.groups()
    if octal or hexadecimal:
        return chr(int(octal, 8) & 0xFF if octal else int(hexadecimal, 16))
    return _ESCAPED.get(letter, letter)


def _operator(block: _Block) -> GraphOperator:
    inputs = [_INPUT.fullmatch(value) for value in _all(block, "input") if isinstance(value, str)]
    fx_names = map(_fx_name, _all(block, "output_desc"))
    return GraphOperator(
        name=_text(block, "name"),
        type_name=_text(block, "type"),
        inputs=tuple((tensor["name"], int(tensor["index"])) for tensor in inputs if tensor),
        fx_outputs={at: (fx["node"], int(fx["index"])) for at, fx in enumerate(fx_names) if fx},
    )


def _fx_name(output: object) -> re.Match[str] | None:
    """Return the name of the FX tensor that an output bears: the last that is one."""
    attributes = [attribute for attribute in _all(output, "attr") if _text(attribute, "key") == _FX_ATTRIBUTE]
    values = (_all(attribute, "value")[:1] for attribute in reversed(attributes))
    names = (_FX_NAME.fullmatch(_text(value, "s")) for of_attribute in values for value in of_attribute)
    return next(filter(None, names), None)


def _all(block: object, key: str) -> list[Any]:
    return [value for name, value in block if name == key] if isinstance(block, list) else []


def _text(block: object, key: str) -> str:
    return next((value for value in _all(block, key) if isinstance(value, str)), "")


def _split(name: str, known: Mapping[str, GraphOperator], lengths: tuple[int, ...]) -> tuple[str, ...]:
    """Take a name apart into known names, of these lengths; () if that cannot be done."""
    parts: list[str] = []
    at = 0
    # What was tried at each place so far: lengths are tried from the longest on, dead ends only once.
    tried: dict[int, Iterator[int]] = {}
    while at < len(name):
        lengths_left = tried.setdefault(at, iter(lengths))
        length = next((one for one in lengths_left if name[at : at + one] in known), 0)
        if length:
            parts.append(name[at : at + length])
            at += length
        elif parts:
            at -= len(parts.pop())
        else:
            return ()
    return tuple(parts)
