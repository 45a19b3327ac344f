"""Tiny models that are not from transformers: recurrent, of graphs, of pictures, and a mixer."""

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH: Final = 32


class Recurrent(nn.Module):
    """Words through an LSTM of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(96, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 96)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.head(self.norm(self.lstm(self.embedding(input_ids))[0]))


class Gated(nn.Module):
    """Words through a GRU whose steps are written out."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(96, WIDTH)
        self.cell = nn.GRUCell(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, 96)

    def forward(self, input_ids: Tensor) -> Tensor:
        vectors, states = self.embedding(input_ids), []
        state = vectors.new_zeros(len(vectors), WIDTH)
        for place in range(vectors.shape[1]):
            state = self.cell(vectors[:, place], state)
            states.append(state + self.mlp(state))
        return self.head(torch.stack(states, 1))


class GraphLayer(nn.Module):
    """Attention along the edges of a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.other = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.score = nn.Linear(2 * WIDTH, 1)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        sent = self.other(nodes)[source]
        score = functional.leaky_relu(self.score(torch.cat((nodes[target], sent), -1)))
        score = torch.exp(score - score.max())
        total = torch.zeros_like(nodes[:, :1]).index_add(0, target, score)
        gathered = torch.zeros_like(nodes).index_add(0, target, sent * score) / (total + 1e-6)
        return self.norm(nodes + torch.relu(self.own(nodes) + gathered))


class Graph(nn.Module):
    """Three layers of attention along edges."""

    def __init__(self) -> None:
        super().__init__()
        self.entry = nn.Linear(6, WIDTH)
        self.layers = nn.ModuleList(GraphLayer() for _ in range(3))
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        hidden = self.entry(nodes)
        for layer in self.layers:
            hidden = layer(hidden, edges)
        return self.head(hidden)


class Residual(nn.Module):
    """Two convolutions and a shortcut, told the time by an embedding if there is one."""

    def __init__(self, entering: int, leaving: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(2, entering), nn.Conv2d(entering, leaving, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(2, leaving), nn.Conv2d(leaving, leaving, 3, padding=1)
        self.time = nn.Linear(WIDTH, leaving)
        self.shortcut = nn.Conv2d(entering, leaving, 1) if entering != leaving else nn.Identity()

    def forward(self, image: Tensor, time: Tensor) -> Tensor:
        hidden = self.conv1(functional.silu(self.norm1(image)))
        hidden = hidden + self.time(functional.silu(time))[:, :, None, None]
        return self.shortcut(image) + self.conv2(functional.silu(self.norm2(hidden)))


def waves(timestep: Tensor, like: Tensor) -> Tensor:
    """Write a time as sines and cosines."""
    rates = torch.exp(torch.arange(WIDTH // 2, dtype=torch.float32) * -0.5)
    angles = timestep[:, None].float() * rates
    return torch.cat((angles.sin(), angles.cos()), -1).to(like.dtype)


class UNet(nn.Module):
    """Down, through the middle with attention, and up again with what was on the way down."""

    def __init__(self) -> None:
        super().__init__()
        self.time_mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.conv_in = nn.Conv2d(3, 16, 3, padding=1)
        self.down1, self.down2 = Residual(16, 16), Residual(16, 32)
        self.shrink = nn.Conv2d(16, 16, 3, stride=2, padding=1)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.middle = Residual(32, 32)
        self.up2, self.up1 = Residual(64, 16), Residual(32, 16)
        self.norm_out, self.conv_out = nn.GroupNorm(2, 16), nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, image: Tensor, timestep: Tensor) -> Tensor:
        time = self.time_mlp(waves(timestep, image))
        first = self.down1(self.conv_in(image), time)
        second = self.down2(self.shrink(first), time)
        words = second.flatten(2).transpose(1, 2)
        mixed = self.attention(words, words, words, need_weights=False)[0].transpose(1, 2).view_as(second)
        middle = self.middle(second + mixed, time)
        up = self.up2(torch.cat((middle, second), 1), time)
        up = functional.interpolate(up, scale_factor=2.0, mode="nearest")
        return self.conv_out(functional.silu(self.norm_out(self.up1(torch.cat((up, first), 1), time))))


class DiTBlock(nn.Module):
    """Attention and an MLP, shifted and scaled by what the time says."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(WIDTH, elementwise_affine=False, eps=1e-6)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(approximate="tanh"), nn.Linear(4 * WIDTH, WIDTH)
        )
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(WIDTH, 6 * WIDTH))

    def forward(self, words: Tensor, time: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(time)[:, None].chunk(6, -1)
        query, key, value = (
            part.unflatten(-1, (4, -1)).transpose(1, 2)
            for part in self.qkv(self.norm1(words) * (1 + scale1) + shift1).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        words = words + gate1 * self.proj(mixed)
        return words + gate2 * self.mlp(self.norm2(words) * (1 + scale2) + shift2)


class DiT(nn.Module):
    """A transformer of patches that takes noise away."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.places = nn.Parameter(torch.randn(1, 16, WIDTH) * 0.1)
        self.time_mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.blocks = nn.ModuleList(DiTBlock() for _ in range(3))
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 48)

    def forward(self, image: Tensor, timestep: Tensor) -> Tensor:
        words = self.patches(image).flatten(2).transpose(1, 2) + self.places
        time = self.time_mlp(waves(timestep, image))
        for block in self.blocks:
            words = block(words, time)
        return functional.pixel_shuffle(self.out(self.norm(words)).transpose(1, 2).unflatten(2, (4, 4)), 4)


class Vae(nn.Module):
    """An encoder to a mean and a variance, and a decoder; the noise is the middle of the distribution."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.GroupNorm(4, 16),
            nn.SiLU(),
            nn.Conv2d(16, 8, 3, padding=1),
        )
        self.mean, self.spread = nn.Conv2d(8, 4, 1), nn.Conv2d(8, 4, 1)
        self.decoder = nn.Sequential(
            nn.Conv2d(4, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.SiLU(),
            nn.ConvTranspose2d(16, 3, 2, stride=2),
        )

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.encoder(image)
        return self.decoder(self.mean(hidden) + 0.1 * torch.exp(0.5 * self.spread(hidden)))


class MixerBlock(nn.Module):
    """An MLP across places and one across channels."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.places = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.channels = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))

    def forward(self, words: Tensor) -> Tensor:
        words = words + self.places(self.norm1(words).transpose(1, 2)).transpose(1, 2)
        return words + self.channels(self.norm2(words))


class Mixer(nn.Module):
    """An MLP-mixer of patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.blocks = nn.ModuleList(MixerBlock() for _ in range(3))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, image: Tensor) -> Tensor:
        words = self.patches(image).flatten(2).transpose(1, 2)
        for block in self.blocks:
            words = block(words)
        return self.head(self.norm(words).mean(1))


class Convolutions(nn.Module):
    """A plain network of convolutions, batch norms and pooling."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (3, 16, 24, 32)
        self.stages = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(one, other, 3, padding=1, bias=False),
                nn.BatchNorm2d(other),
                nn.ReLU(),
                nn.MaxPool2d(2),
            )
            for one, other in pairwise(sizes)
        )
        self.head = nn.Linear(32 * 4, 4)

    def forward(self, image: Tensor) -> Tensor:
        for stage in self.stages:
            image = stage(image)
        return self.head(image.flatten(1))


class Plain(nn.Module):
    """The encoder of torch itself, over a sequence of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.entry = nn.Linear(6, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, series: Tensor) -> Tensor:
        return self.head(self.encoder(series))


def _image() -> dict[str, Tensor]:
    return {"image": torch.randn(2, 3, 16, 16)}


def _noisy() -> dict[str, Tensor]:
    return {**_image(), "timestep": torch.tensor([3, 41])}


def _words() -> dict[str, Tensor]:
    return {"input_ids": torch.randint(3, 90, (2, 7))}


def _graph() -> dict[str, Tensor]:
    return {"nodes": torch.randn(12, 6), "edges": torch.randint(0, 12, (2, 40))}


CUSTOM: Final[dict[str, tuple[Callable[[], nn.Module], Callable[[], dict[str, Tensor]]]]] = {
    "lstm": (Recurrent, _words),
    "gru": (Gated, _words),
    "gnn": (Graph, _graph),
    "unet": (UNet, _noisy),
    "dit": (DiT, _noisy),
    "vae": (Vae, _image),
    "mlp_mixer": (Mixer, _image),
    "convnet": (Convolutions, _image),
    "torch_encoder": (Plain, lambda: {"series": torch.randn(2, 9, 6)}),
}
