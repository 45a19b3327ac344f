"""Write the pairs of `tests/dumps/experts`: mixtures of experts that the target stores in another order.

    python tests/interop/write_moved_experts.py out

The rows of the router lie in that order too, but where the experts alone changed places. In some pairs one
fault more is planted. Needs torch and mindstudio-probe.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from writing import write_pairs

HIDDEN, INNER, EXPERTS, CHOSEN, WORDS, LAYERS = 8, 12, 4, 2, 23, 2
ORDER = [2, 0, 3, 1]
"""Which golden expert each of the target is."""


class Expert(nn.Module):
    """A gated MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(HIDDEN, INNER, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(rows)) * self.up_proj(rows))


class Stacked(nn.Module):
    """The experts, their weights in one tensor each."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(0.3 * torch.randn(EXPERTS, 2 * INNER, HIDDEN))
        self.down_proj = nn.Parameter(0.3 * torch.randn(EXPERTS, HIDDEN, INNER))

    def forward(self, rows: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        def run(number: int, given: Tensor) -> Tensor:
            gate, up = functional.linear(given, self.gate_up_proj[number]).chunk(2, -1)
            return functional.linear(functional.silu(gate) * up, self.down_proj[number])

        return one_by_one(rows, chosen, shares, run)


def one_by_one(rows: Tensor, chosen: Tensor, shares: Tensor, run: Callable[[int, Tensor], Tensor]) -> Tensor:
    """Give each expert the rows of the tokens that chose it, and add up what the experts give."""
    total = torch.zeros_like(rows)
    for number in range(EXPERTS):
        token, place = torch.where(chosen == number)
        if len(token):
            total.index_add_(0, token, run(number, rows[token]) * shares[token, place, None])
    return total


class Mixture(nn.Module):
    """A router and its experts, in a list or in one module."""

    def __init__(self, *, in_list: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS)) if in_list else Stacked()

    def forward(self, given: Tensor) -> Tensor:
        rows = given.reshape(-1, HIDDEN)
        shares, chosen = torch.topk(functional.softmax(self.gate(rows), -1), CHOSEN, -1)
        shares = shares / shares.sum(-1, keepdim=True)
        if isinstance(self.experts, Stacked):
            return self.experts(rows, chosen, shares).view(given.shape)
        experts = self.experts
        return one_by_one(rows, chosen, shares, lambda number, one: experts[number](one)).view(given.shape)

    @torch.no_grad()
    def move(self, *, router: bool) -> None:
        """Store the experts in another order, the rows of the router likewise if they are to be."""
        if isinstance(self.experts, Stacked):
            stored = list(self.experts.parameters())
        else:
            stored, self.experts = [], nn.ModuleList(self.experts[number] for number in ORDER)
        for weight in [*stored, *([self.gate.weight] if router else [])]:
            weight.copy_(weight[ORDER].clone())


class Layer(nn.Module):
    """Attention and a mixture of experts."""

    def __init__(self, *, in_list: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.attention = nn.MultiheadAttention(HIDDEN, 2, batch_first=True)
        self.mlp = Mixture(in_list=in_list)

    def forward(self, given: Tensor) -> Tensor:
        words = self.norm1(given)
        given = given + self.attention(words, words, words, need_weights=False)[0]
        return given + self.mlp(self.norm2(given))


class Model(nn.Module):
    """Two layers."""

    def __init__(self, *, in_list: bool) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(WORDS, HIDDEN), nn.LayerNorm(HIDDEN)
        self.layers = nn.ModuleList(Layer(in_list=in_list) for _ in range(LAYERS))
        self.lm_head = nn.Linear(HIDDEN, WORDS, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        given = self.embed(ids)
        for layer in self.layers:
            given = layer(given)
        return self.lm_head(self.norm(given))


def moved(model: Model) -> None:
    """Store all experts in another order."""
    for layer in model.layers:
        layer.mlp.move(router=True)


def swapped(model: Model) -> None:
    """Let experts change places, and the rows of the routers not."""
    for layer in model.layers:
        layer.mlp.move(router=False)


def off(model: Model) -> None:
    """Make one weight of a moved expert of the second layer larger."""
    moved(model)
    experts = model.layers[1].mlp.experts
    weight = experts.gate_up_proj[3] if isinstance(experts, Stacked) else experts[3].up_proj.weight
    weight.data.mul_(1.1)


def router(model: Model) -> None:
    """Exchange two rows of a moved router of the second layer."""
    moved(model)
    weight = model.layers[1].mlp.gate.weight
    weight.data.copy_(weight[[1, 0, 2, 3]].clone())


PAIRS: dict[str, tuple[bool, Callable[[Model], None], str, str, str]] = {
    "listed_values": (True, moved, "mix", "tensor", "float32"),
    "listed_trained": (True, moved, "mix", "statistics", "float32"),
    "listed_bfloat16": (True, moved, "L0", "statistics", "bfloat16"),
    "listed_digests": (True, moved, "L0", "md5", "float32"),
    "listed_off": (True, off, "L0", "statistics", "float32"),
    "listed_off_values": (True, off, "mix", "tensor", "float32"),
    "listed_swapped": (True, swapped, "L0", "statistics", "float32"),
    "listed_router": (True, router, "L0", "tensor", "float32"),
    "stacked_values": (False, moved, "mix", "tensor", "float32"),
    "stacked_trained": (False, moved, "L0", "tensor", "float32"),
    "stacked_operators_trained": (False, moved, "mix", "tensor", "float32"),
    "stacked_few": (False, moved, "mix", "tensor", "float32"),
    "listed_few": (True, moved, "mix", "tensor", "float32"),
    "stacked_off": (False, off, "L0", "tensor", "float32"),
    "stacked_swapped": (False, swapped, "L0", "tensor", "float32"),
    "stacked_router": (False, router, "L0", "tensor", "float32"),
}
"""By name: whether the experts are in a list, what is done, msprobe's level and task, the target's dtype."""
TRAINED = "trained"
"""How the names of pairs end that have a backward pass."""
FEW = "few"
"""How the names of pairs end that have as many tokens as experts: not all of these run."""


def write_side(name: str, side: str, dump: str) -> None:
    """Write one side of a pair; in a process of its own, for msprobe counts the calls of a process."""
    from msprobe.pytorch import PrecisionDebugger

    in_list, change, level, task, dtype = PAIRS[name]
    torch.manual_seed(3)
    model = Model(in_list=in_list)
    ids = torch.randint(0, WORDS, (1, EXPERTS) if name.endswith(FEW) else (2, 7))
    if side == "target":
        change(model)
        model = model.to(getattr(torch, dtype))
    passes = "all" if name.endswith(TRAINED) else "forward"
    own = {"scope": [], "list": [], "data_mode": [passes]}
    own |= {"summary_mode": "md5"} if task == "md5" else {}
    task = "statistics" if task == "md5" else task
    said = {"task": task, "dump_path": dump, "rank": [], "step": [], "level": level, task: own}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(said))
        debugger = PrecisionDebugger(config_path=str(config))
        debugger.start(model=model)
        logits = model(ids)
        if name.endswith(TRAINED):
            functional.cross_entropy(logits.flatten(0, 1), ids.flatten()).backward()
        debugger.stop()
        debugger.step()
    for stack in Path(dump).rglob("stack.json"):
        stack.unlink()


if __name__ == "__main__":
    write_pairs(__doc__, list(PAIRS), write_side)
