"""Write the dump of a tiny model that is spread over ranks, with the real msprobe and torch.distributed (gloo).

    python dump_ranks.py out/one --micro-steps 2                          on one rank, two micro batches
    python dump_ranks.py out/tensor --tensor 2                            each layer over two ranks
    python dump_ranks.py out/sequence --tensor 2 --sequence               and what is between them by its first dimension
    python dump_ranks.py out/stages --pipeline 2 --micro-steps 2          two layers on each of two ranks
    python dump_ranks.py out/chunks --pipeline 2 --virtual 2              one layer in each of two chunks of two ranks
    python dump_ranks.py out/both --tensor 2 --pipeline 2 --llama         a Llama on four ranks: two stages of two shards
    python dump_ranks.py out/experts --experts 2 --llama                  half of the experts, and of the batch, on each rank; forward
    python dump_ranks.py out/fault --tensor 2 --scale 1:2:up=1.5          rank 1 has a wrong weight in layer 2

Stages count their layers from 0. The weights depend on the layer alone, so all of them compute the same.
"""  # noqa: E501

import argparse
import json
import os
import socket
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from msprobe.pytorch import PrecisionDebugger
from torch import Tensor, multiprocessing, nn
from torch.nn import functional

WIDTH, INNER, WORDS, LAYERS = 16, 32, 24, 4
HEADS, KEYS, EXPERTS = 4, 2, 4
BATCH = (2, 6)


class Ranks:
    """The ranks that hold shards of the same layers as this one does."""

    group: dist.ProcessGroup | None = None

    @classmethod
    def size(cls) -> int:
        return dist.get_world_size(cls.group)

    @classmethod
    def own(cls) -> int:
        return dist.get_rank(cls.group)


class Reduce(torch.autograd.Function):
    """Adds up what tensor-parallel ranks have computed."""

    @staticmethod
    def forward(ctx: object, partial: Tensor) -> Tensor:
        del ctx
        total = partial.clone()
        dist.all_reduce(total, group=Ranks.group)
        return total

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        del ctx
        return gradient


class Copy(torch.autograd.Function):
    """Gives the same to all tensor-parallel ranks, and adds up their gradients."""

    @staticmethod
    def forward(ctx: object, same: Tensor) -> Tensor:
        del ctx
        return same

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return Reduce.forward(ctx, gradient)


def gathered(shard: Tensor) -> Tensor:
    """Lay the rows of all ranks one after another."""
    whole = shard.new_empty(shard.shape[0] * Ranks.size(), *shard.shape[1:])
    dist.all_gather_into_tensor(whole, shard.contiguous(), group=Ranks.group)
    return whole


def scattered_sum(partial: Tensor) -> Tensor:
    """Add up what ranks have computed, and keep the own rows."""
    shard = partial.new_empty(partial.shape[0] // Ranks.size(), *partial.shape[1:])
    dist.reduce_scatter_tensor(shard, partial.contiguous(), group=Ranks.group)
    return shard


def own_rows(whole: Tensor) -> Tensor:
    return whole.chunk(Ranks.size())[Ranks.own()].clone()


class Gather(torch.autograd.Function):
    """Gives each rank the rows of all, of which it computes a part of a sum."""

    @staticmethod
    def forward(ctx: object, shard: Tensor) -> Tensor:
        del ctx
        return gathered(shard)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        del ctx
        return scattered_sum(gradient)


class ReduceScatter(torch.autograd.Function):
    """Adds up what tensor-parallel ranks have computed, each its own rows."""

    @staticmethod
    def forward(ctx: object, partial: Tensor) -> Tensor:
        del ctx
        return scattered_sum(partial)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        del ctx
        return gathered(gradient)


class Split(torch.autograd.Function):
    """Leaves each rank its own rows of what all ranks have."""

    @staticmethod
    def forward(ctx: object, whole: Tensor) -> Tensor:
        del ctx
        return own_rows(whole)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        del ctx
        return gathered(gradient)


class Collect(torch.autograd.Function):
    """Gives each rank the rows of all, of which all compute the same."""

    @staticmethod
    def forward(ctx: object, shard: Tensor) -> Tensor:
        del ctx
        return gathered(shard)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        del ctx
        return own_rows(gradient)


def add_shards(module: nn.Module, layer: int, options: argparse.Namespace, **shapes: tuple[int, int]) -> None:
    """Add linear modules to a module, each with the shard of its weight that this rank has.

    Those that give the width of the model add up, all others give their part of the whole.
    """
    generator = torch.Generator().manual_seed(layer)
    for name, shape in shapes.items():
        weight = torch.randn(*shape, generator=generator) * 0.3
        shard = weight.chunk(options.tensor, int(shape[0] == WIDTH and name in {"down", "o"}))[
            options.rank % options.tensor
        ]
        linear = nn.Linear(*shard.T.shape, bias=False)
        wrong = options.scale and options.scale[:3] == (options.rank, layer, name)
        linear.weight.data = shard.clone() * (options.scale[3] if wrong else 1.0)
        module.add_module(name, linear)


class Mlp(nn.Module):
    def __init__(self, layer: int, options: argparse.Namespace) -> None:
        super().__init__()
        add_shards(self, layer, options, up=(INNER, WIDTH), down=(WIDTH, INNER))
        self.is_sharded = options.tensor > 1
        self.by_sequence = options.sequence

    def forward(self, hidden: Tensor) -> Tensor:
        if self.by_sequence:
            return ReduceScatter.apply(self.down(functional.gelu(self.up(Gather.apply(hidden)))))
        inner = self.up(Copy.apply(hidden) if self.is_sharded else hidden)
        partial = self.down(functional.gelu(inner))
        return Reduce.apply(partial) if self.is_sharded else partial


class Sharded(nn.Module):
    """A block of a Llama whose first products give each rank its part, and whose last one adds up."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.is_sharded, self.by_sequence = options.tensor > 1, options.sequence

    def entered(self, hidden: Tensor) -> Tensor:
        if self.by_sequence:
            return Gather.apply(hidden)
        return Copy.apply(hidden) if self.is_sharded else hidden

    def left(self, partial: Tensor) -> Tensor:
        if self.by_sequence:
            return ReduceScatter.apply(partial)
        return Reduce.apply(partial) if self.is_sharded else partial


class Attention(Sharded):
    def __init__(self, layer: int, options: argparse.Namespace) -> None:
        super().__init__(options)
        keys = KEYS * WIDTH // HEADS
        add_shards(
            self, 100 + layer, options, q=(WIDTH, WIDTH), k=(keys, WIDTH), v=(keys, WIDTH), o=(WIDTH, WIDTH)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = self.entered(hidden)
        query, key, value = (
            part(hidden).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        key, value = (part.repeat_interleave(HEADS // KEYS, 1) for part in (key, value))
        weights = torch.softmax(query @ key.transpose(2, 3) / (WIDTH // HEADS) ** 0.5, -1)
        return self.left(self.o((weights @ value).transpose(1, 2).flatten(2)))


class GatedMlp(Sharded):
    def __init__(self, layer: int, options: argparse.Namespace) -> None:
        super().__init__(options)
        add_shards(self, layer, options, gate=(INNER, WIDTH), up=(INNER, WIDTH), down=(WIDTH, INNER))

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = self.entered(hidden)
        return self.left(self.down(functional.silu(self.gate(hidden)) * self.up(hidden)))


class Expert(nn.Module):
    def __init__(self, layer: int, options: argparse.Namespace) -> None:
        super().__init__()
        add_shards(self, layer, options, gate=(INNER, WIDTH), up=(INNER, WIDTH), down=(WIDTH, INNER))

    def forward(self, rows: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(rows)) * self.up(rows))


class Experts(nn.Module):
    """A mixture of experts of which each rank has some, numbered from 0 unless they are named by all."""

    def __init__(self, layer: int, options: argparse.Namespace) -> None:
        super().__init__()
        self.spread = options.experts
        count = EXPERTS // max(1, options.experts)
        self.first = options.rank % max(1, options.experts) * count
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        generator = torch.Generator().manual_seed(1000 + layer)
        self.gate.weight.data = torch.randn(EXPERTS, WIDTH, generator=generator)
        numbers = range(self.first, self.first + count)
        self.experts = nn.ModuleDict(
            {
                str(number if options.numbered else number - self.first): Expert(10 * number + layer, options)
                for number in numbers
            }
        )

    def forward(self, hidden: Tensor) -> Tensor:
        shares, chosen = torch.softmax(self.gate(hidden), -1).topk(2, -1)
        tokens, spread = hidden.flatten(0, 1), self.spread > 1
        shares, chosen = shares.flatten(0, 1), chosen.flatten(0, 1)
        if spread:
            tokens, shares, chosen = (gathered(own) for own in (tokens, shares, chosen))
        total = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts.values(), self.first):
            rows, places = torch.where(chosen == number)
            if len(rows):
                total = total.index_add(0, rows, expert(tokens[rows]) * shares[rows, places, None])
        return (scattered_sum(total) if spread else total).view_as(hidden)


class LlamaLayer(nn.Module):
    def __init__(self, layer: int, options: argparse.Namespace) -> None:
        super().__init__()
        self.input_norm, self.norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.attention = Attention(layer, options)
        self.mlp = (Experts if options.experts else GatedMlp)(layer, options)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.input_norm(hidden))
        return hidden + self.mlp(self.norm(hidden))


class Layer(nn.Module):
    def __init__(self, layer: int, options: argparse.Namespace) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mlp = Mlp(layer, options)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.mlp(self.norm(hidden))


class Model(nn.Module):
    """Some layers of the model; the embedding with the first, the head with the last."""

    def __init__(self, layers: range, options: argparse.Namespace) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(LAYERS)
        words, head = torch.randn(2, WORDS, WIDTH, generator=generator)
        self.embedding = nn.Embedding(WORDS, WIDTH, _weight=words) if layers.start == 0 else None
        self.layers = nn.ModuleList(
            (LlamaLayer if options.llama else Layer)(layer, options) for layer in layers
        )
        self.head = nn.Linear(WIDTH, WORDS, bias=False) if layers.stop == LAYERS else None
        if self.head is not None:
            self.head.weight.data = head.clone()
        self.by_sequence = options.sequence

    def forward(self, hidden: Tensor) -> Tensor:
        if self.embedding is not None:
            hidden = self.embedding(hidden)
        hidden = Split.apply(hidden) if self.by_sequence else hidden
        for layer in self.layers:
            hidden = layer(hidden)
        hidden = Collect.apply(hidden) if self.by_sequence else hidden
        return hidden if self.head is None else self.head(hidden)


class Wrapped(nn.Module):
    """msprobe does not record the module that it is given."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, hidden: Tensor) -> Tensor:
        return self.model(hidden)


class Schedule:
    """Runs the chunks of one rank: stages do all micro batches forward, then all backward."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.copies = max(1, options.experts)
        self.chunks = options.pipeline * options.virtual
        stage, depth = options.rank // options.width, LAYERS // self.chunks
        self.places = [chunk * options.pipeline + stage for chunk in range(options.virtual)]
        self.models = [
            Wrapped(Model(range(place * depth, place * depth + depth), options)) for place in self.places
        ]

    def run(self) -> None:
        generator = torch.Generator().manual_seed(WORDS)
        batches = [
            torch.randint(0, WORDS, BATCH, generator=generator).chunk(self.copies)[
                self.options.rank % self.copies
            ]
            for _ in range(self.options.micro_steps)
        ]
        together = len(batches) if self.chunks > 1 else 1
        for start in range(0, len(batches), together):
            some = batches[start : start + together]
            with torch.set_grad_enabled(not self.options.experts):
                ran = [[self.forward(chunk, words) for chunk in range(len(self.models))] for words in some]
            if self.options.experts:
                continue
            for words, passed in zip(some, ran, strict=True):
                for chunk in reversed(range(len(self.models))):
                    self.backward(chunk, *passed[chunk], words)

    def forward(self, chunk: int, words: Tensor) -> tuple[Tensor, Tensor]:
        place, given = self.places[chunk], words
        if place > 0:
            given = torch.zeros(*BATCH, WIDTH)
            dist.recv(given, src=self.neighbour(-1))
            given.requires_grad_(True)  # noqa: FBT003 - torch's own signature
        result = self.models[chunk](given)
        if place < self.chunks - 1:
            dist.send(result.detach(), dst=self.neighbour(1))
        return given, result

    def backward(self, chunk: int, given: Tensor, result: Tensor, words: Tensor) -> None:
        place = self.places[chunk]
        if place == self.chunks - 1:
            functional.cross_entropy(result.reshape(-1, WORDS), words.reshape(-1)).backward()
        else:
            gradient = torch.zeros_like(result)
            dist.recv(gradient, src=self.neighbour(1))
            result.backward(gradient)
        if place > 0:
            dist.send(given.grad, dst=self.neighbour(-1))

    def neighbour(self, step: int) -> int:
        return (self.options.rank + step * self.options.width) % self.options.world


def write_rank(rank: int, options: argparse.Namespace) -> None:
    """Run one rank under msprobe."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=options.world)
    options.rank = rank
    for start in range(0, options.world, options.width):
        group = dist.new_group(list(range(start, start + options.width)))
        Ranks.group = group if start <= rank < start + options.width else Ranks.group
    schedule = Schedule(options)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(msprobe_config(options)), encoding="utf-8")
        debugger = PrecisionDebugger(config_path=str(config))
        debugger.start(model=schedule.models if options.virtual > 1 else schedule.models[0])
        schedule.run()
        debugger.stop()
        debugger.step()
    dist.destroy_process_group()


def msprobe_config(options: argparse.Namespace) -> dict[str, object]:
    """Say in msprobe's own words what it shall dump."""
    return {
        "task": options.task,
        "dump_path": str(options.dump.resolve()),
        "rank": [],
        "step": [],
        "level": options.level,
        options.task: {"scope": [], "list": [], "data_mode": ["all"]},
    }


def scaled(text: str) -> tuple[int, int, str, float]:
    """Read `RANK:LAYER:up|down=FACTOR`."""
    where, _, factor = text.partition("=")
    rank, layer, name = where.split(":")
    return int(rank), int(layer), name, float(factor)


def shorten_paths(dump: Path) -> None:
    """Take this machine's directories out of the dump."""
    places = sorted({*sys.path, str(Path(__file__).parent), str(dump.resolve())}, key=len, reverse=True)
    for file in dump.rglob("*.json"):
        text = file.read_text(encoding="utf-8")
        for place in filter(None, places):
            text = text.replace(f"{place}/", "")
        file.write_text(text, encoding="utf-8")


def main() -> None:
    """Write the dump that the command line describes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dump", type=Path)
    parser.add_argument("--task", choices=["statistics", "tensor"], default="statistics")
    parser.add_argument("--level", choices=["L0", "L1", "mix"], default="mix")
    for size in ("tensor", "pipeline", "virtual", "micro-steps"):
        parser.add_argument(f"--{size}", type=int, default=1)
    parser.add_argument("--sequence", action="store_true")
    parser.add_argument("--llama", action="store_true")
    parser.add_argument("--experts", type=int, default=0, metavar="RANKS")
    parser.add_argument("--numbered", action="store_true", help="experts bear the numbers of all ranks")
    parser.add_argument("--scale", type=scaled, metavar="RANK:LAYER:up|down=FACTOR")
    options = parser.parse_args()
    options.width = max(options.tensor, options.experts)
    options.world = options.width * options.pipeline
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        options.port = probe.getsockname()[1]
    # Forked, a rank has what it took seconds to import.
    multiprocessing.start_processes(write_rank, args=(options,), nprocs=options.world, start_method="fork")
    shorten_paths(options.dump)


if __name__ == "__main__":
    main()
