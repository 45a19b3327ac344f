"""Runs of a small torch model on the same tokens in several layouts, saved as the passes of an engine.

The model is causal, so that what it gives for a token depends on the tokens before it alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

WIDTH, WORDS, LAYERS, HEADS = 24, 50, 3, 3
SEQUENCES = ([5, 7, 9, 11, 2], [5, 7, 4, 6], [31, 8, 12, 40, 3, 17])
PADDING = 0


class Attention(nn.Module):
    """Causal attention with positions and a cache of what came before in each sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.o_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.cache: dict[int, list[torch.Tensor]] = {}

    def forward(self, rows: torch.Tensor, where: Sequence[tuple[int, int]]) -> torch.Tensor:
        """Attend row by row; `where` has sequence and position of each, those of padding at -1."""
        query, key, value = self.qkv(rows).chunk(3, -1)
        given = torch.zeros_like(query)
        for at, (sequence, position) in enumerate(where):
            if position < 0:
                continue
            held = self.cache.setdefault(sequence, [])
            del held[position:]
            held.append(torch.stack([key[at], value[at]]))
            keys, values = torch.stack(held).unbind(1)
            decay = -0.1 * torch.arange(position, -1, -1)
            given[at] = torch.softmax(keys @ query[at] / WIDTH**0.5 + decay, 0) @ values
        return self.o_proj(given)


class Layer(nn.Module):
    """Attention and a feed-forward on a residual stream."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attn = Attention()
        self.up_proj = nn.Linear(WIDTH, 2 * WIDTH)
        self.down_proj = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, rows: torch.Tensor, where: Sequence[tuple[int, int]]) -> torch.Tensor:
        rows = rows + self.attn(self.norm(rows), where)
        return rows + self.down_proj(torch.relu(self.up_proj(rows)))


class Body(nn.Module):
    """Embedding, layers, norm."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids: torch.Tensor, where: Sequence[tuple[int, int]]) -> torch.Tensor:
        rows = self.embed_tokens(ids)
        for layer in self.layers:
            rows = layer(rows, where)
        return self.norm(rows)


Tokens = Sequence[tuple[int, int]]
"""Sequence and position of each row; -1 and -1 of padding."""


class Run:
    """A run of the model: passes are given one after the other, and saved."""

    def __init__(self, folder: Path, fault: tuple[int, int] | None = None) -> None:
        """Begin; `fault` is the sequence and position of a token that one module spoils."""
        torch.manual_seed(3)
        self.model, self.folder, self.fault = Body(), folder / "Rank0_pid1", fault
        self.folder.mkdir(parents=True)
        self.saved: dict[str, Any] = {}
        self.where: Tokens = ()
        for name, module in self.model.named_modules():
            if name:
                module.register_forward_hook(self._keep(f"model.{name}"))

    def _keep(self, name: str) -> Any:  # noqa: ANN401
        def hook(_: nn.Module, __: object, given: torch.Tensor) -> torch.Tensor:
            rows = given.detach().clone()
            if name == "model.layers.1.down_proj" and self.fault in self.where:
                rows[self.where.index(self.fault)] *= 1.7
            is_leaf = not name.endswith(("attn", "0", "1", "2"))
            if is_leaf:
                self.saved[name] = rows.reshape(*self.shape, -1)
            return rows

        return hook

    @torch.no_grad()
    def step(
        self,
        where: Tokens,
        shape: tuple[int, ...] | None = None,
        drafts: Mapping[tuple[int, int], int] | None = None,
        **told: Any,  # noqa: ANN401
    ) -> "Run":
        """Run and save a pass; without `told`, positions are saved beside the token ids.

        `drafts` has tokens that stand in place of those of the sequence, by sequence and position.
        """
        self.saved, self.where, self.shape = {}, where, shape or (len(where),)
        given = [SEQUENCES[one][at] if at >= 0 else PADDING for one, at in where]
        ids = torch.tensor([(drafts or {}).get(one, token) for one, token in zip(where, given, strict=True)])
        self.model(ids, where)
        told = told or {"positions": torch.tensor([max(0, at) for _, at in where]).reshape(self.shape)}
        batch = {"input_ids": ids.reshape(self.shape), **told}
        self.saved |= {f"model.forward_batch_info.{key}": value for key, value in batch.items()}
        torch.save(self.saved, self.folder / f"Pass{len(list(self.folder.iterdir())):05d}.pt")
        return self

    @property
    def path(self) -> Path:
        """Where the run was saved."""
        return self.folder.parent


def whole(*sequences: int) -> Tokens:
    """Return all tokens of some sequences, one sequence after the other."""
    return [(one, at) for one in sequences for at in range(len(SEQUENCES[one]))]


def padded(sequences: Iterable[int], *, left: bool) -> tuple[Tokens, tuple[int, int], torch.Tensor]:
    """Return the tokens of some sequences with padding, their shape, and their mask."""
    chosen = list(sequences)
    length = max(len(SEQUENCES[one]) for one in chosen)
    rows: list[tuple[int, int]] = []
    for one in chosen:
        more = [(-1, -1)] * (length - len(SEQUENCES[one]))
        rows += [*more, *whole(one)] if left else [*whole(one), *more]
    mask = torch.tensor([int(at >= 0) for _, at in rows]).reshape(len(chosen), length)
    return rows, (len(chosen), length), mask
