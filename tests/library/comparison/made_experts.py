"""A small mixture of experts, dumped as msit dumps it from torch and from ATB, values included.

torch runs the experts one by one, those alone that a token chose, its rows in the order in which torch.where
gives them: by the place of the choice, then by token. ATB sorts all rows by expert, then by token.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from library.dumps.atb_samples import container, write
from library.dumps.msprobe_samples import write_dump
from torch import Tensor
from torch.nn.functional import rms_norm, silu

HIDDEN, INNER, EXPERTS, CHOSEN, LAYERS, VOCABULARY = 32, 24, 6, 2, 2, 48
CODES = {torch.float32: 0, torch.bfloat16: 27, torch.int32: 3}


@dataclass(frozen=True)
class Fault:
    """What a step of an expert gives too much."""

    layer: int
    expert: int
    factor: float = 1.5
    step: str = "down_proj"


@dataclass(frozen=True)
class Atb:
    """How the ATB model is made.

    Attributes:
        fused: whether gate and up are one grouped product, which one activation takes as a whole.
        apart: whether gate and up are two grouped products; not if fused.
        shared_first: whether the shared expert runs before the chosen ones.
        around: whether a graph of its own lies around each grouped product.
        each: whether each expert runs by itself; there are no grouped products then.
    """

    fused: bool = True
    apart: bool = False
    shared_first: bool = False
    around: bool = True
    each: bool = False


class Model:
    """The weights of the model, and what it gives."""

    def __init__(self, head: int = VOCABULARY) -> None:
        self._random = np.random.default_rng(20)
        self.weights: dict[str, Tensor] = {"embed_tokens": self._made(VOCABULARY, HIDDEN, scale=1.0)}
        for layer in range(LAYERS):
            at = f"layers.{layer}"
            self.weights[f"{at}.self_attn.o_proj"] = self._made(HIDDEN, HIDDEN)
            # Choices lie so far apart that rounding changes none.
            self.weights[f"{at}.mlp.gate"] = self._made(EXPERTS, HIDDEN, scale=2.0)
            self.weights[f"{at}.mlp.shared_expert_gate"] = self._made(1, HIDDEN)
            for expert in (*(f"experts.{number}" for number in range(EXPERTS)), "shared_expert"):
                for name in ("gate_proj", "up_proj"):
                    self.weights[f"{at}.mlp.{expert}.{name}"] = self._made(INNER, HIDDEN)
                self.weights[f"{at}.mlp.{expert}.down_proj"] = self._made(HIDDEN, INNER)
        self.weights["lm_head"] = self._made(head, HIDDEN)

    def _made(self, *shape: int, scale: float = 0.3) -> Tensor:
        return torch.tensor(self._random.standard_normal(shape) * scale, dtype=torch.float32)

    def tie(self, layer: int, tokens: list[int], at: int) -> "Model":
        """Let one of some tokens be drawn nearly as much to the expert that it just does not choose."""
        run = self.run(tokens, torch.float32)
        name = f"layers.{layer}.mlp.gate"
        given, scores = run.given[name][at], run.made[name][at]
        last, next_one = scores.argsort(descending=True)[CHOSEN - 1 : CHOSEN + 1].tolist()
        missing = (1 - 5e-4) * scores[last] - scores[next_one]
        self.weights[name][next_one] += missing * given / (given @ given)
        return self

    def scaled(self, name: str, factor: float) -> "Model":
        """Make a weight too large."""
        self.weights[name] = self.weights[name] * factor
        return self

    def run(self, tokens: list[int], dtype: torch.dtype, fault: Fault | None = None) -> "Run":
        """Run the model on some tokens."""
        run = Run({name: weight.to(dtype) for name, weight in self.weights.items()}, fault)
        run.forward(torch.tensor(tokens))
        return run


class Run:
    """What one pass of the model takes and gives, by name of the module.

    Attributes:
        given: what each module is given; made: what it gives.
        experts: of each layer, which expert each row of each choice went to: [choice, token].
    """

    def __init__(self, weights: Mapping[str, Tensor], fault: Fault | None) -> None:
        self.weights, self.fault = weights, fault
        self.given: dict[str, Tensor] = {}
        self.made: dict[str, Tensor] = {}
        self.experts: list[Tensor] = []

    def step(self, name: str, given: Tensor, made: Tensor) -> Tensor:
        self.given[name], self.made[name] = given, made
        return made

    def linear(self, name: str, given: Tensor) -> Tensor:
        return self.step(name, given, given @ self.weights[name].T * self.scale(name))

    def scale(self, name: str) -> float:
        fault = self.fault
        off = fault and f"layers.{fault.layer}.mlp.experts.{fault.expert}.{fault.step}"
        return fault.factor if fault is not None and off == name else 1.0

    def norm(self, name: str, given: Tensor) -> Tensor:
        return self.step(name, given, rms_norm(given, (HIDDEN,), eps=1e-6))

    def forward(self, tokens: Tensor) -> None:
        stream = self.step("embed_tokens", tokens, self.weights["embed_tokens"][tokens])
        for layer in range(LAYERS):
            at = f"layers.{layer}"
            before = stream
            stream = stream + self.linear(
                f"{at}.self_attn.o_proj", self.norm(f"{at}.input_layernorm", stream)
            )
            self.made[f"{at}.middle"] = stream
            stream = stream + self.block(layer, self.norm(f"{at}.post_attention_layernorm", stream))
            self.step(at, before, stream)
        self.linear("lm_head", self.norm("norm", stream))

    def expert(self, name: str, given: Tensor) -> Tensor:
        gate, up = self.linear(f"{name}.gate_proj", given), self.linear(f"{name}.up_proj", given)
        product = self.step(f"{name}.act_fn", gate, silu(gate)) * up
        return self.step(name, given, self.linear(f"{name}.down_proj", product))

    def block(self, layer: int, given: Tensor) -> Tensor:
        at = f"layers.{layer}.mlp"
        scores = self.linear(f"{at}.gate", given).float().softmax(-1)
        shares, chosen = scores.topk(CHOSEN, dim=-1)
        self.experts.append(chosen.T)
        total = torch.zeros_like(given)
        for number in range(EXPERTS):
            places, rows = torch.where(chosen.T.eq(number))
            if len(rows):
                made = self.expert(f"{at}.experts.{number}", given[rows])
                total.index_add_(0, rows, made * shares[rows, places, None].to(given.dtype))
        self.made[f"{at}.routed"] = total
        own = self.expert(f"{at}.shared_expert", given)
        share = self.linear(f"{at}.shared_expert_gate", given).sigmoid()
        self.made[f"{at}.share"], self.made[f"{at}.shared"] = share, share * own
        return self.step(at, given, total + share * own)

    def sorted_rows(self, layer: int, name: str, *, given: bool = False) -> Tensor:
        """Return the rows of all experts as ATB sorts them: by expert, then by token."""
        of_side = self.given if given else self.made
        found = []
        for number in range(EXPERTS):
            rows = torch.where(self.experts[layer] == number)[1]
            if len(rows):
                value = of_side[f"layers.{layer}.mlp.experts.{number}.{name}"]
                found.append(value[rows.argsort()])
        return torch.cat(found)


def write_torch(root: Path, runs: list[Run], shared: str = "shared_expert") -> Path:
    """Write a msit dump of torch, one token of each run; the shared expert is called so."""
    folder = root / "msit_dump_20250101_000000" / "torch_tensors" / "cpu_42"
    for token, run in enumerate(runs):
        for name, made in run.made.items():
            if name in run.given:
                is_head = name == "lm_head"
                called = name.replace("shared_expert.", f"{shared}.")
                called = (
                    shared.join(called.rsplit("shared_expert", 1)) if called.endswith("expert") else called
                )
                module = folder / str(token) / f"root.{name if is_head else f'model.{called}'}"
                module.mkdir(parents=True)
                torch.save(run.given[name].clone(), module / "input_0.pth")
                torch.save(made.clone(), module / "output.pth")
    whole = tree("root", "MoeForCausalLM", [_model_tree(), tree("root.lm_head", "Linear")])
    renamed = (
        json.dumps(whole).replace('shared_expert"', f'{shared}"').replace("shared_expert.", f"{shared}.")
    )
    write(folder / "model_tree.json", renamed)
    return root


def tree(name: str, type_name: str, children: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Return a module as msit writes the tree of a model."""
    return {"name": name, "type": type_name, "children": children or []}


def _model_tree() -> dict[str, Any]:
    layers = [_layer_tree(f"root.model.layers.{number}") for number in range(LAYERS)]
    return tree(
        "root.model",
        "MoeModel",
        [
            tree("root.model.embed_tokens", "Embedding"),
            tree("root.model.layers", "ModuleList", layers),
            tree("root.model.norm", "MoeRMSNorm"),
        ],
    )


def _layer_tree(at: str) -> dict[str, Any]:
    experts = [_expert_tree(f"{at}.mlp.experts.{number}") for number in range(EXPERTS)]
    block = [
        tree(f"{at}.mlp.gate", "Linear"),
        tree(f"{at}.mlp.experts", "ModuleList", experts),
        _expert_tree(f"{at}.mlp.shared_expert"),
        tree(f"{at}.mlp.shared_expert_gate", "Linear"),
    ]
    return tree(
        at,
        "MoeDecoderLayer",
        [
            tree(f"{at}.self_attn", "MoeAttention", [tree(f"{at}.self_attn.o_proj", "Linear")]),
            tree(f"{at}.mlp", "MoeSparseMoeBlock", block),
            tree(f"{at}.input_layernorm", "MoeRMSNorm"),
            tree(f"{at}.post_attention_layernorm", "MoeRMSNorm"),
        ],
    )


def _expert_tree(at: str) -> dict[str, Any]:
    linear = [tree(f"{at}.{name}", "Linear") for name in ("gate_proj", "up_proj", "down_proj")]
    return tree(at, "MoeMLP", [*linear, tree(f"{at}.act_fn", "SiLU")])


class Graphs:
    """Writes the operations of an ATB model in the order in which they run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.nodes: list[dict[str, Any]] = []
        self._open: list[tuple[str, list[dict[str, Any]]]] = [("", self.nodes)]

    def operation(self, type_name: str, *outputs: Tensor, graph: bool = False, **told: int) -> None:
        """Write an operation; as the only one of a graph if asked for."""
        if graph:
            self.begin("integrated_gmm" if "Grouped" in type_name else "LinearNoQuant")
            self.operation(type_name, *outputs, **told)
            self.end(*outputs)
            return
        self.begin(type_name, **told)
        self.end(*outputs)

    def begin(self, type_name: str, **told: int) -> None:
        above, siblings = self._open[-1]
        node = {"opName": f"{type_name}_{len(siblings)}", "opType": type_name, "param": told, "nodes": []}
        siblings.append(node)
        self._open.append((f"{above}/{len(siblings) - 1}_{type_name}", node["nodes"]))

    def end(self, *outputs: Tensor) -> None:
        path, _ = self._open.pop()
        for number, output in enumerate(outputs):
            values = output.contiguous()
            data = values.view(torch.int16) if values.dtype is torch.bfloat16 else values
            dims = ",".join(map(str, values.shape))
            file = self._folder / path.lstrip("/") / "after" / f"outtensor{number}.bin"
            write(file, container(CODES[values.dtype], dims, data.numpy().tobytes()))


def write_atb(root: Path, runs: list[Run], like: Atb) -> Path:
    """Write a msit dump of ATB, one pass of each run."""
    dump = root / "msit_dump_20250101_000000"
    graphs = Graphs(dump)
    for token, run in enumerate(runs):
        graphs = Graphs(dump / "tensors" / "0_42" / str(token))
        _write_pass(graphs, run, like)
    model = {"modelName": "DecoderModel", "nodes": graphs.nodes}
    write(dump / "model" / "42" / "DecoderModel.json", json.dumps(model))
    return root


def _write_pass(to: Graphs, run: Run, like: Atb) -> None:
    made = run.made
    write_routed = _write_each if like.each else _write_routed
    to.begin("WordEmbedding")
    to.operation("GatherOperation", made["embed_tokens"])
    to.end(made["embed_tokens"])
    for layer in range(LAYERS):
        at = f"layers.{layer}"
        to.begin("Decoder_layer")
        to.begin("Attention")
        to.operation("RmsNormOperation", made[f"{at}.input_layernorm"])
        to.operation("LinearOperation", made[f"{at}.self_attn.o_proj"], graph=True)
        to.end(made[f"{at}.self_attn.o_proj"])
        to.operation("ElewiseOperation", made[f"{at}.middle"], elewiseType=8)
        to.operation("RmsNormOperation", made[f"{at}.post_attention_layernorm"])
        if like.shared_first:
            _write_shared(to, run, layer)
        write_routed(to, run, layer, like)
        if not like.shared_first:
            _write_shared(to, run, layer)
        to.operation("ElewiseOperation", made[f"{at}.mlp"], elewiseType=8)
        to.operation("ElewiseOperation", made[at], elewiseType=8)
        to.end(made[at])
    to.operation("RmsNormOperation", made["norm"])
    to.begin("LmHead")
    to.operation("LinearOperation", made["lm_head"], graph=True)
    to.end(made["lm_head"])


def _write_routed(to: Graphs, run: Run, layer: int, like: Atb) -> None:
    at = f"layers.{layer}.mlp"
    gate, up = run.sorted_rows(layer, "gate_proj"), run.sorted_rows(layer, "up_proj")
    counts = torch.bincount(run.experts[layer].flatten(), minlength=EXPERTS)
    to.begin("SparseMoe")
    to.operation("LinearOperation", run.made[f"{at}.gate"], graph=True)
    to.operation("SoftmaxOperation", run.made[f"{at}.gate"].float().softmax(-1))
    to.begin("MoeMlp")
    rows = run.sorted_rows(layer, "gate_proj", given=True)
    to.operation("MoeInitRoutingOperation", rows, counts.cumsum(0).to(torch.int32))
    to.operation("ElewiseOperation", counts.cumsum(0).to(torch.int32), elewiseType=1)
    product = run.sorted_rows(layer, "down_proj", given=True)
    if like.fused:
        to.operation("GroupedMatmulOperation", torch.cat([gate, up], 1), graph=like.around)
        to.operation("ActivationOperation", product, activationType=6)
    else:
        if like.apart:
            to.operation("GroupedMatmulOperation", gate, graph=like.around)
            to.operation("GroupedMatmulOperation", up, graph=like.around)
        else:
            to.operation("GroupedMatmulOperation", torch.cat([gate, up], 1), graph=like.around)
            to.operation("SplitOperation", gate, up)
        to.operation("ActivationOperation", silu(gate), activationType=4)
        to.operation("ElewiseOperation", product, elewiseType=9)
    to.operation("GroupedMatmulOperation", run.sorted_rows(layer, "down_proj"), graph=like.around)
    to.operation("MoeTokenUnpermuteOperation", run.made[f"{at}.routed"])
    to.end(run.made[f"{at}.routed"])
    to.end(run.made[f"{at}.routed"])


def _write_each(to: Graphs, run: Run, layer: int, _: Atb) -> None:
    at = f"layers.{layer}.mlp"
    to.begin("SparseMoe")
    to.operation("LinearOperation", run.made[f"{at}.gate"], graph=True)
    to.operation("SoftmaxOperation", run.made[f"{at}.gate"].float().softmax(-1))
    for number in range(EXPERTS):
        if f"{at}.experts.{number}" in run.made:
            _write_expert(to, run, f"{at}.experts.{number}", "Mlp")
    to.end(run.made[f"{at}.routed"])


def _write_expert(to: Graphs, run: Run, own: str, type_name: str) -> None:
    to.begin(type_name)
    both = torch.cat([run.made[f"{own}.gate_proj"], run.made[f"{own}.up_proj"]], 1)
    to.operation("LinearOperation", both, graph=True)
    to.operation("ActivationOperation", run.given[f"{own}.down_proj"], activationType=6)
    to.operation("LinearOperation", run.made[f"{own}.down_proj"], graph=True)
    to.end(run.made[f"{own}.down_proj"])


def _write_shared(to: Graphs, run: Run, layer: int) -> None:
    at = f"layers.{layer}.mlp"
    _write_expert(to, run, f"{at}.shared_expert", "SharedExpert")
    to.operation("LinearOperation", run.made[f"{at}.shared_expert_gate"], graph=True)
    to.operation("ActivationOperation", run.made[f"{at}.share"], activationType=8)
    to.operation("ElewiseOperation", run.made[f"{at}.shared"], elewiseType=9)


TYPES = {"embed_tokens": "Embedding", "act_fn": "SiLU", "mlp": "MoeSparseMoeBlock", "shared_expert": "MoeMLP"}


def write_msprobe(root: Path, run: Run) -> Path:
    """Write the statistics that msprobe records of the modules of torch; it records no list of modules."""
    data: dict[str, Any] = {}
    construct: dict[str, Any] = {}
    names = {name: _msprobe_name(name) for name in run.made if name in run.given}
    for name, full in names.items():
        data[full] = {
            "input_args": [_statistics(run.given[name])],
            "input_kwargs": {},
            "output": [_statistics(run.made[name])],
        }
        around = (name.rsplit(".", count)[0] for count in range(1, name.count(".") + 1))
        construct[full] = next((names[one] for one in around if one in names), None)
    write_dump(root / "step0" / "rank0", data, construct)
    return root


def _msprobe_name(name: str) -> str:
    last = name.rpartition(".")[2]
    type_name = TYPES.get(last, "MoeRMSNorm" if "norm" in last else "Linear")
    if last.isdigit():
        type_name = "MoeMLP" if "experts" in name else "MoeDecoderLayer"
    return f"Module.{name if name == 'lm_head' else f'model.{name}'}.{type_name}.forward.0"


def _statistics(value: Tensor) -> dict[str, Any]:
    wide = value.float()
    return {
        "type": "torch.Tensor",
        "dtype": str(value.dtype),
        "shape": list(value.shape),
        "Max": wide.max().item(),
        "Min": wide.min().item(),
        "Mean": wide.mean().item(),
        "Norm": wide.norm().item(),
        "requires_grad": False,
    }
