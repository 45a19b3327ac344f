"""One model, dumped by two frameworks: as a tree of torch modules, and as a topology of ATB operations.

Every tensor has the name of its value, so that a pair of other names is a wrong one. Statistics follow from
that name, and so do the checksums of torch tensors; an ATB dump of data has neither.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

from firstdrift.matching.plan import SlicePlan, TensorPair
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.model.tensor import DataLocation, Role, Statistics, TensorRecord

TOKENS = 5
Value = tuple[str, int]
"""Name of a value, and its width."""


@dataclass(frozen=True)
class Model:
    """What a model is like.

    Attributes:
        layers: how many decoder layers.
        hidden: width of the residual stream; queries are as wide.
        key_value: width of the keys.
        inner: width inside the feed-forward block.
        fused: whether the torch model has one module for query, key and value.
        gated: whether the feed-forward block has a gate.
        packed: whether the torch model has one module for gate and up, and halves what it gives.
        experts: how many experts it has; 0 for none.
        listed: whether the torch model has a module for each expert, not one for all.
        vision: how many layers of a vision tower run first, wider than those of the decoder.
        encoder: how many encoder layers run before.
        parallel: whether attention and feed-forward block are added up together.
        query_norm: whether queries and keys have norms of their own.
        alibi: whether positions are biases of the scores, as in Bloom: nothing is rotated, words are normed.
    """

    layers: int = 2
    hidden: int = 32
    key_value: int = 16
    inner: int = 64
    fused: bool = False
    gated: bool = True
    packed: bool = False
    experts: int = 0
    listed: bool = False
    vision: int = 0
    encoder: int = 0
    parallel: bool = False
    query_norm: bool = False
    alibi: bool = False


@dataclass
class Writer:
    """Writes nodes in the order in which they finish."""

    statistics: bool
    digests: bool
    nodes: list[Node] = field(default_factory=list)
    values: dict[int, str] = field(default_factory=dict)

    def record(self, role: Role, key: int, value: Value, *, batch: bool) -> TensorRecord:
        name, width = value
        number = crc32(name.encode()) % 9973 + 1
        known = Statistics(number / 7, -number / 9, number / 1000, float(number)) if self.statistics else None
        record = TensorRecord(
            role,
            str(key),
            "int64" if name == "ids" else "float32",
            (1, TOKENS, width) if batch else (TOKENS, width),
            known,
            f"crc32:{number:08x}:{4 * TOKENS * width}" if self.digests else None,
            DataLocation(Path(f"{name}.bin"), "bin"),
        )
        self.values[id(record)] = name
        return record

    def node(
        self,
        name: str,
        path: str,
        type_name: str,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        *,
        parent: str | None,
        is_module: bool,
        arguments: dict[str, str] | None = None,
    ) -> None:
        batch = self.digests
        told = [
            TensorRecord(Role.INPUT, key, "int", (), scalar=said) for key, said in (arguments or {}).items()
        ]
        given = [self.record(Role.INPUT, at, value, batch=batch) for at, value in enumerate(inputs)]
        made = [self.record(Role.OUTPUT, at, value, batch=batch) for at, value in enumerate(outputs)]
        kind = NodeKind.MODULE if is_module else NodeKind.API
        order = len(self.nodes)
        tensors = (*given, *told, *made)
        self.nodes.append(Node(name, path, kind, type_name, Direction.FORWARD, 0, order, parent, tensors))

    @property
    def slice(self) -> Slice:
        return Slice(SliceListing(Coordinates(token=0), Path("made")), tuple(self.nodes))


class Torch:
    """Writes the modules of a torch model, with their inputs."""

    def __init__(self, *, statistics: bool) -> None:
        self.to = Writer(statistics=statistics, digests=True)

    def module(
        self, path: str, type_name: str, inputs: Sequence[Value] = (), outputs: Sequence[Value] = ()
    ) -> None:
        parent = f"root.{path.rpartition('.')[0]}" if "." in path else "root"
        self.to.node(f"root.{path}", path, type_name, inputs, outputs, parent=parent, is_module=True)

    def root(self) -> None:
        self.to.node("root", "Model", "ModelForCausalLM", (), (), parent=None, is_module=True)


class Atb:
    """Writes the operations of an ATB model: only their outputs, unless inputs are asked for."""

    def __init__(
        self,
        *,
        statistics: bool,
        rename: dict[str, str] | None = None,
        at_once: bool = False,
        told: bool = True,
    ) -> None:
        self.to = Writer(statistics=statistics, digests=False)
        self.at_once, self._told = at_once, told
        self._rename = rename or {}
        self._counts: dict[str | None, int] = {}

    def begin(self, parent: str | None, type_name: str) -> str:
        """Take the next number in a graph, and return the name of a node."""
        number = self._counts.get(parent, 0)
        self._counts[parent] = number + 1
        label = f"{number}_{self._rename.get(type_name, type_name)}"
        return f"{parent}/{label}" if parent else label

    def end(self, name: str, outputs: Sequence[Value] = (), *, graph: bool = True, work: str = "") -> None:
        parent, _, label = name.rpartition("/")
        number, _, type_name = label.partition("_")
        path = f"{type_name}.{number}" if not parent else name.replace("/", ".")
        key = "elewiseType" if "Elewise" in type_name else "activationType"
        arguments = {key: work} if work and (self._told or key == "elewiseType") else None
        self.to.node(
            name, path, type_name, (), outputs, parent=parent or None, is_module=graph, arguments=arguments
        )

    def operation(self, parent: str | None, type_name: str, *outputs: Value, work: str = "") -> str:
        name = self.begin(parent, type_name)
        self.end(name, outputs, graph=False, work=work)
        return name

    def linear(self, parent: str, output: Value) -> None:
        around = self.begin(parent, "LinearNoQuant")
        self.operation(around, "LinearOperation", output)
        self.end(around, [output])


def torch_of(model: Model, *, statistics: bool = False) -> Writer:
    """Write a model as torch runs it."""
    torch = Torch(statistics=statistics)
    hidden, width = model.hidden, model.key_value
    if model.vision:
        _torch_tower(torch, model)
    torch.module("model.embed_tokens", "Embedding", [("ids", 1)], [("embedded", hidden)])
    stream = "embedded"
    if model.alibi:
        stream = "normed words"
        torch.module("model.embed_norm", "LayerNorm", [("embedded", hidden)], [(stream, hidden)])
    else:
        torch.module("model.rotary_emb", "RotaryEmbedding", [("embedded", hidden)], [("cos", 8), ("sin", 8)])
    for stack, count in (("encoder", model.encoder), ("layers", model.layers)):
        for number in range(count):
            stream = _torch_layer(torch, model, f"model.{stack}.{number}", f"{stack}{number}", stream)
        if count:
            torch.module(f"model.{stack}", "ModuleList")
    torch.module("model.norm", "RMSNorm", [(stream, hidden)], [("normed", hidden)])
    torch.module("model", "Model")
    torch.module("lm_head", "Linear", [("normed", hidden)], [("logits", 4 * width)])
    torch.root()
    return torch.to


def _tower(model: Model) -> Model:
    return Model(layers=model.vision, hidden=48, key_value=48, inner=96, gated=False)


def _torch_tower(torch: Torch, model: Model) -> None:
    stream = "patches"
    torch.module("visual.patch_embed", "Conv3d", [("pixels", 12)], [(stream, 48)])
    for number in range(model.vision):
        stream = _torch_layer(torch, _tower(model), f"visual.blocks.{number}", f"vision{number}", stream)
    torch.module("visual.blocks", "ModuleList")
    torch.module("visual.merger.norm", "LayerNorm", [(stream, 48)], [("vision normed", 48)])
    torch.module("visual.merger.fc", "Linear", [("vision normed", 48)], [("merged", model.hidden)])
    torch.module("visual.merger", "PatchMerger", [(stream, 48)], [("merged", model.hidden)])
    torch.module("visual", "VisionTower", (), [("merged", model.hidden)])


def _torch_layer(torch: Torch, model: Model, path: str, name: str, stream: str) -> str:
    hidden, width = model.hidden, model.key_value
    torch.module(f"{path}.norm_1", "RMSNorm", [(stream, hidden)], [(f"{name} normed 1", hidden)])
    normed = [(f"{name} normed 1", hidden)]
    attention = f"{path}.self_attn"
    sizes = {"q": hidden, "k": width, "v": width}
    if model.fused:
        fused = (f"{name} q+{name} k+{name} v", hidden + 2 * width)
        torch.module(f"{attention}.query_key_value", "Linear", normed, [fused])
    else:
        for part, size in sizes.items():
            torch.module(f"{attention}.{part}_proj", "Linear", normed, [(f"{name} {part}", size)])
    if model.query_norm:
        for part in ("q", "k"):
            own = (f"{name} {part}", sizes[part])
            torch.module(f"{attention}.{part}_norm", "RMSNorm", [own], [(f"{own[0]} normed", own[1])])
    torch.module(f"{attention}.o_proj", "Linear", [(f"{name} core", hidden)], [(f"{name} o", hidden)])
    torch.module(attention, "SelfAttention", (), [(f"{name} o", hidden)])
    middle = stream if model.parallel else f"{name} sum 1"
    torch.module(f"{path}.norm_2", "RMSNorm", [(middle, hidden)], [(f"{name} normed 2", hidden)])
    _torch_feed_forward(torch, model, f"{path}.mlp", name)
    torch.module(path, "DecoderLayer", [(stream, hidden)], [(f"{name} sum 2", hidden)])
    return f"{name} sum 2"


def _torch_feed_forward(torch: Torch, model: Model, path: str, name: str) -> None:
    hidden, inner = model.hidden, model.inner
    given, out = [(f"{name} normed 2", hidden)], [(f"{name} down", hidden)]
    if model.experts:
        torch.module(f"{path}.gate", "Linear", given, [(f"{name} router", model.experts)])
        if model.listed:
            _torch_experts(torch, model, f"{path}.experts", name)
        else:
            torch.module(f"{path}.experts", "FusedExperts", given, out)
    else:
        packed = model.packed and model.gated
        first = (f"{name} gate+{name} up", 2 * inner) if packed else (f"{name} gate", inner)
        torch.module(f"{path}.{'gate_up_proj' if packed else 'gate_proj'}", "Linear", given, [first])
        torch.module(f"{path}.act_fn", "SiLU", [(f"{name} gate", inner)], [(f"{name} act", inner)])
        if model.gated and not packed:
            torch.module(f"{path}.up_proj", "Linear", given, [(f"{name} up", inner)])
        middle = f"{name} product" if model.gated else f"{name} act"
        torch.module(f"{path}.down_proj", "Linear", [(middle, inner)], out)
    torch.module(path, "FeedForward", given, out)


def _torch_experts(torch: Torch, model: Model, path: str, name: str) -> None:
    for number in range(model.experts):
        own, expert = f"{name} expert {number}", f"{path}.{number}"
        given, made = [(f"{own} given", model.hidden)], [(f"{own} made", model.hidden)]
        torch.module(f"{expert}.fc1", "Linear", given, [(f"{own} fc1", model.inner)])
        torch.module(f"{expert}.act_fn", "SiLU", [(f"{own} fc1", model.inner)], [(f"{own} act", model.inner)])
        torch.module(f"{expert}.fc2", "Linear", [(f"{own} act", model.inner)], made)
        torch.module(expert, "Expert", given, made)
    torch.module(path, "ModuleList")


def atb_of(
    model: Model,
    *,
    statistics: bool = False,
    apart: bool = False,
    at_once: bool = False,
    told: bool = True,
    rename: dict[str, str] | None = None,
    without: frozenset[int] = frozenset(),
) -> Writer:
    """Write a model as ATB runs it.

    Args:
        model: which one.
        statistics: whether statistics were dumped.
        apart: whether query, key and value, gate and up are computed apart.
        at_once: whether one activation takes gate and up as they were computed, and multiplies.
        told: whether it is recorded what an activation was told.
        rename: other names for types.
        without: decoder layers that do not run.
    """
    atb = Atb(statistics=statistics, rename=rename, at_once=at_once, told=told)
    hidden = model.hidden
    if model.vision:
        atb.operation(None, "Conv3dOperation", ("patches", 48))
        for number in range(model.vision):
            _atb_layer(atb, _tower(model), f"vision{number}", apart=apart)
        merger = atb.begin(None, "PatchMerger")
        atb.operation(merger, "LayerNormOperation", ("vision normed", 48))
        atb.linear(merger, ("merged", hidden))
        atb.end(merger, [("merged", hidden)])
    around = atb.begin(None, "WordEmbedding")
    atb.operation(around, "GatherOperation", ("embedded", hidden))
    atb.end(around, [("embedded", hidden)])
    if model.alibi:
        atb.operation(None, "LayerNormOperation", ("normed words", hidden))
    else:
        around = atb.begin(None, "PositionalEmbeddingGather")
        atb.operation(around, "GatherOperation", ("cos", 8))
        atb.operation(around, "GatherOperation", ("sin", 8))
        atb.end(around, [("cos", 8), ("sin", 8)])
    for stack, count in (("encoder", model.encoder), ("layers", model.layers)):
        for number in range(count):
            if stack == "encoder" or number not in without:
                _atb_layer(atb, model, f"{stack}{number}", apart=apart)
    atb.operation(None, "RmsNormOperation", ("normed", hidden))
    around = atb.begin(None, "LmHead")
    atb.linear(around, ("logits", 4 * model.key_value))
    atb.end(around, [("logits", 4 * model.key_value)])
    return atb.to


def _atb_layer(atb: Atb, model: Model, name: str, *, apart: bool) -> None:
    hidden, width = model.hidden, model.key_value
    kinds = {"encoder": "Encoder_layer", "vision": "Vision_layer", "layers": "Decoder_layer"}
    layer = atb.begin(None, kinds[name.rstrip("0123456789")])
    attention = atb.begin(layer, "Attention")
    parts = [(f"{name} q", hidden), (f"{name} k", width), (f"{name} v", width)]
    pack = atb.begin(attention, "QKVLinearSplitPack")
    atb.operation(pack, "RmsNormOperation", (f"{name} normed 1", hidden))
    _atb_linear(atb, pack, parts, apart=apart)
    atb.end(pack, parts)
    if model.query_norm:
        for part in parts[:2]:
            atb.operation(attention, "RmsNormOperation", (f"{part[0]} normed", part[1]))
    before = " normed" if model.query_norm else ""
    if not model.alibi:
        rotated = [(f"{part}{before} rotated", size) for part, size in parts[:2]]
        rope = atb.begin(attention, "RotaryPositionEmbedding")
        atb.operation(rope, "RopeOperation", *rotated)
        atb.end(rope, rotated)
    atb.operation(attention, "ReshapeAndCacheOperation")
    atb.operation(attention, "SelfAttentionOperation", (f"{name} core", hidden))
    atb.linear(attention, (f"{name} o", hidden))
    atb.end(attention, [(f"{name} o", hidden)])
    if not model.parallel:
        atb.operation(layer, "ElewiseOperation", (f"{name} sum 1", hidden), work="8")
    _atb_feed_forward(atb, model, layer, name, apart=apart)
    if model.parallel:
        atb.operation(layer, "ElewiseOperation", (f"{name} both", hidden), work="8")
    atb.operation(layer, "ElewiseOperation", (f"{name} sum 2", hidden), work="8")
    atb.end(layer, [(f"{name} sum 2", hidden)])


def _atb_linear(atb: Atb, parent: str, parts: list[Value], *, apart: bool) -> None:
    if apart:
        for part in parts:
            atb.linear(parent, part)
        return
    fused = "+".join(name for name, _ in parts), sum(size for _, size in parts)
    atb.linear(parent, fused)
    atb.operation(parent, "SplitOperation", *parts)


def _atb_feed_forward(atb: Atb, model: Model, layer: str, name: str, *, apart: bool) -> None:
    hidden, inner = model.hidden, model.inner
    block = atb.begin(layer, "Moe" if model.experts else "MlpGateUpWeightPack")
    atb.operation(block, "RmsNormOperation", (f"{name} normed 2", hidden))
    if model.experts:
        atb.linear(block, (f"{name} router", model.experts))
        atb.operation(block, "GatingOperation", (f"{name} chosen", 2))
        atb.operation(block, "GroupedMatmulOperation", (f"{name} inner", inner))
        atb.operation(block, "MoeFinalizeRoutingOperation", (f"{name} down", hidden))
    else:
        parts = [(f"{name} gate", inner), (f"{name} up", inner)]
        at_once = atb.at_once and model.gated
        if at_once:
            atb.linear(block, (f"{name} gate+{name} up", 2 * inner))
            atb.operation(block, "ActivationOperation", (f"{name} product", inner), work="6")
        elif model.gated:
            _atb_linear(atb, block, parts, apart=apart)
        else:
            atb.linear(block, parts[0])
        if not at_once:
            atb.operation(block, "ActivationOperation", (f"{name} act", inner), work="4")
        if model.gated and not at_once:
            atb.operation(block, "ElewiseOperation", (f"{name} product", inner), work="9")
        atb.linear(block, (f"{name} down", hidden))
    atb.end(block, [(f"{name} down", hidden)])


def wrong_pairs(plan: SlicePlan, golden: Writer, target: Writer) -> list[str]:
    """Return the pairs of tensors that do not hold one value."""
    wrong = []
    for pair in plan.pairs:
        names = [
            _value(pair.golden, pair.golden_parts, golden, pair),
            _value(pair.target, pair.target_parts, target, pair),
        ]
        if names[0] != names[1]:
            wrong.append(f"{pair.golden_node} {names[0]} | {pair.target_node} {names[1]}")
    return wrong


def _value(record: TensorRecord, parts: tuple[TensorRecord, ...], written: Writer, pair: TensorPair) -> str:
    names = [written.values[id(part)] for part in parts or (record,)]
    if pair.joining == "rotated" and parts:
        return f"{names[0]} rotated"
    return "+".join(names)
