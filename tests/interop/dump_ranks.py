"""Write the dump of a tiny model that is spread over ranks, with the real msprobe and torch.distributed (gloo).

    python dump_ranks.py out/one --micro-steps 2                          on one rank, two micro batches
    python dump_ranks.py out/tensor --tensor 2                            each layer over two ranks
    python dump_ranks.py out/sequence --tensor 2 --sequence               and what is between them by its first dimension
    python dump_ranks.py out/stages --pipeline 2 --micro-steps 2          two layers on each of two ranks
    python dump_ranks.py out/chunks --pipeline 2 --virtual 2              one layer in each of two chunks of two ranks
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
from torch import Tensor, multiprocessing, nn
from torch.nn import functional

WIDTH, INNER, WORDS, LAYERS = 16, 32, 24, 4
BATCH = (2, 6)


class Reduce(torch.autograd.Function):
    """Adds up what tensor-parallel ranks have computed."""

    @staticmethod
    def forward(ctx: object, partial: Tensor) -> Tensor:
        del ctx
        total = partial.clone()
        dist.all_reduce(total)
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
    whole = shard.new_empty(shard.shape[0] * dist.get_world_size(), *shard.shape[1:])
    dist.all_gather_into_tensor(whole, shard.contiguous())
    return whole


def scattered_sum(partial: Tensor) -> Tensor:
    """Add up what ranks have computed, and keep the own rows."""
    shard = partial.new_empty(partial.shape[0] // dist.get_world_size(), *partial.shape[1:])
    dist.reduce_scatter_tensor(shard, partial.contiguous())
    return shard


def own_rows(whole: Tensor) -> Tensor:
    return whole.chunk(dist.get_world_size())[dist.get_rank()].clone()


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


class Mlp(nn.Module):
    def __init__(self, layer: int, options: argparse.Namespace) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(layer)
        shard = options.rank % options.tensor
        weights = {
            "up": (torch.randn(INNER, WIDTH, generator=generator) * 0.3).chunk(options.tensor, 0)[shard],
            "down": (torch.randn(WIDTH, INNER, generator=generator) * 0.3).chunk(options.tensor, 1)[shard],
        }
        for name, weight in weights.items():
            linear = nn.Linear(*weight.T.shape, bias=False)
            wrong = options.scale and options.scale[:3] == (options.rank, layer, name)
            linear.weight.data = weight.clone() * (options.scale[3] if wrong else 1.0)
            self.add_module(name, linear)
        self.is_sharded = options.tensor > 1
        self.by_sequence = options.sequence

    def forward(self, hidden: Tensor) -> Tensor:
        if self.by_sequence:
            return ReduceScatter.apply(self.down(functional.gelu(self.up(Gather.apply(hidden)))))
        inner = self.up(Copy.apply(hidden) if self.is_sharded else hidden)
        partial = self.down(functional.gelu(inner))
        return Reduce.apply(partial) if self.is_sharded else partial


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
        self.layers = nn.ModuleList(Layer(layer, options) for layer in layers)
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
        self.chunks = options.pipeline * options.virtual
        stage, depth = options.rank // options.tensor, LAYERS // self.chunks
        self.places = [chunk * options.pipeline + stage for chunk in range(options.virtual)]
        self.models = [
            Wrapped(Model(range(place * depth, place * depth + depth), options)) for place in self.places
        ]

    def run(self) -> None:
        generator = torch.Generator().manual_seed(WORDS)
        batches = [
            torch.randint(0, WORDS, BATCH, generator=generator) for _ in range(self.options.micro_steps)
        ]
        together = len(batches) if self.chunks > 1 else 1
        for start in range(0, len(batches), together):
            some = batches[start : start + together]
            ran = [[self.forward(chunk, words) for chunk in range(len(self.models))] for words in some]
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
        return (self.options.rank + step * self.options.tensor) % (
            self.options.tensor * self.options.pipeline
        )


def write_rank(rank: int, options: argparse.Namespace) -> None:
    """Run one rank under msprobe."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=options.tensor * options.pipeline)
    options.rank = rank
    schedule = Schedule(options)
    from msprobe.pytorch import PrecisionDebugger

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
    parser.add_argument("--scale", type=scaled, metavar="RANK:LAYER:up|down=FACTOR")
    options = parser.parse_args()
    if options.tensor > 1 and options.pipeline > 1:
        parser.error("ranks add up over all ranks: spread it over shards or over stages")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        options.port = probe.getsockname()[1]
    multiprocessing.spawn(write_rank, args=(options,), nprocs=options.tensor * options.pipeline)
    shorten_paths(options.dump)


if __name__ == "__main__":
    main()
