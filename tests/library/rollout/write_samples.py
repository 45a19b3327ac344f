"""Write the samples of tests/dumps/rollout: a tiny model in bfloat16 generates, and is scored in float32.

    python tests/library/rollout/write_samples.py tests/dumps/rollout

| file              | what is off                                                                           |
| ----------------- | ------------------------------------------------------------------------------------- |
| rollout.jsonl     | nothing: what the engine wrote, in bfloat16, with verl's names                        |
| trainer.jsonl     | nothing: the same model in float32                                                    |
| temperature.jsonl | a temperature of 1.5 that the rollout did not apply                                   |
| shifted.jsonl     | from its 20th token on, the 3rd sequence has the log-probabilities of the token behind |
| router.jsonl      | the router of layer 2 has two experts exchanged                                       |
| not_finite.jsonl  | the 5th sequence has NaN from its 30th token on                                       |

`--example` writes examples/rollout instead: six sequences without experts, one of which drifts, as the
trainer applied a temperature of 1.5 to it alone.

`--study` prints the noise of larger, healthy runs instead, in each dtype: what docs/rollout.md says of it.
"""

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Change = Callable[[list[dict[str, Any]]], None]
VOCABULARY, WIDTH, LAYERS, HEADS, EXPERTS, CHOSEN = 256, 64, 4, 4, 8, 2
SEQUENCES, PROMPT, ANSWER = 12, 8, 48


class Layer(nn.Module):
    """Attention, then experts that a router chooses."""

    def __init__(self) -> None:
        """Make the weights."""
        super().__init__()
        self.attention = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.output = nn.Linear(WIDTH, WIDTH, bias=False)
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, 2 * WIDTH) / math.sqrt(WIDTH))
        self.down = nn.Parameter(torch.randn(EXPERTS, 2 * WIDTH, WIDTH) / math.sqrt(2 * WIDTH))

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return what goes to the next layer, and the experts of each token."""
        batch, length, _ = hidden.shape
        queries, keys, values = (
            part.view(batch, length, HEADS, -1).transpose(1, 2)
            for part in self.attention(functional.rms_norm(hidden, (WIDTH,))).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        hidden = hidden + self.output(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        normed = functional.rms_norm(hidden, (WIDTH,))
        weights, chosen = self.router(normed).float().softmax(-1).topk(CHOSEN)
        inner = functional.silu(torch.einsum("blw,blkwv->blkv", normed, self.up[chosen]))
        outputs = torch.einsum("blkv,blkvw->blkw", inner, self.down[chosen])
        return hidden + (outputs * weights.to(outputs.dtype)[..., None]).sum(2), chosen


class Model(nn.Module):
    """A decoder of a few layers."""

    def __init__(self) -> None:
        """Make the weights, all of which bfloat16 holds."""
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        with torch.no_grad():
            self.head.weight.mul_(6)
            for parameter in self.parameters():
                parameter.copy_(parameter.bfloat16())

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits in float32 and the experts by token, layer and choice."""
        hidden, routed = self.embedding(tokens), []
        for layer in self.layers:
            hidden, chosen = layer(hidden)
            routed.append(chosen)
        return self.head(functional.rms_norm(hidden, (WIDTH,))).float(), torch.stack(routed, 2)


def model_in(dtype: torch.dtype) -> Model:
    """Make the model, the same in every dtype."""
    torch.manual_seed(20)
    return Model().to(dtype).eval()


def generate(model: Model, sequences: int, answer: int) -> Tensor:
    """Let the model answer prompts, two times each."""
    generator = torch.Generator().manual_seed(7)
    prompts = torch.randint(VOCABULARY, (sequences // 2, PROMPT), generator=generator)
    tokens = prompts.repeat_interleave(2, 0)
    for _ in range(answer):
        logits, _ = model(tokens)
        new = torch.multinomial(logits[:, -1].softmax(-1), 1, generator=generator)
        tokens = torch.cat([tokens, new], 1)
    return tokens


def score(model: Model, tokens: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of the answers, and the experts of all tokens."""
    logits, routed = model(tokens)
    every = (logits / temperature).log_softmax(-1)[:, PROMPT - 1 : -1]
    return every.gather(-1, tokens[:, PROMPT:, None]).squeeze(-1), routed


def rows(tokens: Tensor, scored: tuple[Tensor, Tensor], field: str) -> list[dict[str, Any]]:
    """Write what a side has as verl names it."""
    log_probs, routed = scored
    return [
        {
            "uid": f"prompt-{number // 2}",
            "sample_index": number,
            "prompts": tokens[number, :PROMPT].tolist(),
            "responses": tokens[number, PROMPT:].tolist(),
            "response_mask": [1] * (tokens.shape[1] - PROMPT),
            field: [float(f"{value:.7g}") for value in log_probs[number].tolist()],
            "routed_experts": routed[number].tolist(),
        }
        for number in range(len(tokens))
    ]


def write(file: Path, found: list[dict[str, Any]]) -> None:
    """Write JSON lines."""
    file.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in found))


def write_samples(folder: Path) -> None:
    """Write all samples."""
    rollout, trainer = model_in(torch.bfloat16), model_in(torch.float32)
    tokens = generate(rollout, SEQUENCES, ANSWER)
    write(folder / "rollout.jsonl", rows(tokens, score(rollout, tokens), "rollout_log_probs"))

    def trained(
        file: str, change: Callable[[list[dict[str, Any]]], None] = lambda _: None, **given: float
    ) -> None:
        found = rows(tokens, score(trainer, tokens, **given), "old_log_probs")
        change(found)
        write(folder / file, found)

    def shift(found: list[dict[str, Any]]) -> None:
        values = found[2]["old_log_probs"]
        found[2]["old_log_probs"] = values[:20] + values[21:] + values[-1:]

    def lose(found: list[dict[str, Any]]) -> None:
        found[4]["old_log_probs"][30:] = [math.nan] * (ANSWER - 30)

    trained("trainer.jsonl")
    trained("temperature.jsonl", temperature=1.5)
    trained("shifted.jsonl", shift)
    trained("not_finite.jsonl", lose)
    router = trainer.layers[2].router.weight
    router[[0, 1]] = router[[1, 0]]
    trained("router.jsonl")


def write_example(folder: Path) -> None:
    """Write a few sequences, one of which the trainer scored at another temperature."""
    rollout, trainer = model_in(torch.bfloat16), model_in(torch.float32)
    tokens = generate(rollout, 6, ANSWER)
    sides = {
        "rollout": rows(tokens, score(rollout, tokens), "rollout_log_probs"),
        "trainer": rows(tokens, score(trainer, tokens), "old_log_probs"),
    }
    drifting = rows(tokens, score(trainer, tokens, temperature=1.5), "old_log_probs")
    sides["trainer"][3] = drifting[3]
    for name, found in sides.items():
        for one in found:
            del one["routed_experts"], one["response_mask"]
        write(folder / f"{name}.jsonl", found)


def study(folder: Path) -> None:
    """Print how large the noise of healthy runs is, and how far its tails go."""
    from firstdrift.rollout import noise
    from firstdrift.rollout.compare import compare_rollout
    from firstdrift.rollout.experts import ExpertsOfPair

    for dtype in (torch.bfloat16, torch.float16):
        rollout = model_in(dtype)
        tokens = generate(rollout, 64, 96)
        write(folder / "rollout.jsonl", rows(tokens, score(rollout, tokens), "rollout_log_probs"))
        scored = score(model_in(torch.float32), tokens)
        write(folder / "trainer.jsonl", rows(tokens, scored, "old_log_probs"))
        report = compare_rollout(folder / "rollout.jsonl", folder / "trainer.jsonl")
        assert report.scale is not None
        for is_rerouted in (False, True):
            worst = [0.0]
            for pair in report.pairs:
                assert isinstance(pair.experts, ExpertsOfPair)
                both = [side.log_probs[pair.compared] for side in (pair.rollout, pair.trainer)]
                shown = noise.telling(*both) & ((pair.experts.rerouted(pair.compared) > 0) == is_rerouted)
                worst += abs(noise.moved(*both)[shown]).tolist()
            largest = max(worst) / report.scale
            print(f"{dtype}: {len(worst) - 1} tokens, {is_rerouted=}, largest {largest:.3g} scales")
        print(f"{dtype}: noise {report.scale:.3g}, {report.verdict}")


def main() -> None:
    """Write the samples, or print the study."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--study", action="store_true")
    parser.add_argument("--example", action="store_true")
    asked = parser.parse_args()
    with torch.no_grad():
        (study if asked.study else write_example if asked.example else write_samples)(asked.folder)


if __name__ == "__main__":
    main()
