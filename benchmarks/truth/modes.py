"""Run a model forward, through a training step, three of them with an optimizer, or word by word.

What ran is written by the real msprobe, or in the layout of msit.
"""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from architectures import Built, output_of
from kernels import Clock, multiply_coarsely, sum_in_blocks
from msit_layout import Parts, Recorder
from setting import Setting, prepare
from torch import Tensor
from torch.nn import functional

MODES: Final = ("fwd", "train", "steps", "gen")
STEPS: Final = 3
WORDS: Final = 4

Around = Callable[[Any], contextlib.AbstractContextManager[None]]
Watch = Callable[[int, Any, Tensor], None]


@dataclass(frozen=True)
class Wanted:
    """What of a run msprobe shall write."""

    task: str
    level: str
    mode: str
    rank: int = 0
    several: bool = False
    """Whether other ranks write into the same folder."""


MSIT: Final = ("msit", "msit_weights")
"""The levels that mean msit's layout, without weights and with them."""


def run(
    built: Built, mode: str, setting: Setting, around: Around, watch: Watch | None = None
) -> list[Tensor]:
    """Run a model; `around` surrounds each step, `watch` sees the model after it. Return the outputs."""
    model, batch = prepare(built.model, built.batch, setting)
    if setting.blocked:
        sum_in_blocks()
    if setting.coarse:
        multiply_coarsely(setting.coarse)
    precision = torch.autocast("cpu", torch.bfloat16) if setting.autocast else contextlib.nullcontext()
    training = mode in {"train", "steps"}
    steps = _words(model, batch) if mode == "gen" else _batches(model, batch, STEPS if mode == "steps" else 1)
    optimizer = _optimizer(model, setting) if mode == "steps" else None
    outputs = []
    for number, (asked, ask) in enumerate(steps):
        Clock.step = number
        for change in setting.at_step:
            change(number, asked)
        if optimizer:
            optimizer.zero_grad()
        with around(model):
            with torch.set_grad_enabled(training), precision:
                output = output_of(ask(asked))
                loss = _loss(output, batch, setting.reduction) if training else None
            if loss is not None:
                loss.backward()
        if optimizer:
            if setting.before_update:
                setting.before_update(model)
            _step(model, optimizer, setting)
        outputs.append(output.detach().float())
        if watch:
            watch(number, model, loss if loss is not None else output)
    return outputs


def _batches(model: Any, batch: dict[str, Any], count: int) -> Any:  # noqa: ANN401
    cached = {} if not hasattr(model, "config") or "input_ids" not in batch else {"use_cache": False}
    plain = {name: value for name, value in batch.items() if name != "target"}
    for number in range(count):
        shifted = {
            name: value.roll(number, -1)
            if value.dtype == torch.int64 and name.endswith("input_ids")
            else value
            for name, value in plain.items()
        }
        yield {**shifted, **_accepted(model, cached)}, lambda asked: model(**asked)


def _accepted(model: Any, arguments: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    import inspect

    known = inspect.signature(model.forward).parameters
    return {name: value for name, value in arguments.items() if name in known}


def _words(model: Any, batch: dict[str, Any]) -> Any:  # noqa: ANN401
    """Yield the whole beginning, then each word with the cache of those before; which words is given."""
    words = batch["input_ids"]
    cache: list[Any] = [None]
    start = words.shape[1] - WORDS + 1

    def ask(asked: dict[str, Any]) -> Any:  # noqa: ANN401
        answer = model(**asked)
        cache[0] = getattr(answer, "past_key_values", None)
        if cache[0] is None:
            raise ValueError("there is no cache of keys and values")
        return answer

    for number in range(WORDS):
        given = words[:, :start] if number == 0 else words[:, start + number - 1 : start + number]
        yield {"input_ids": given, "use_cache": True, "past_key_values": cache[0]}, ask


def _loss(output: Tensor, batch: dict[str, Any], reduction: str) -> Tensor:
    if "input_ids" in batch and output.dim() == 3 and output.shape[-1] >= 90:
        words = batch.get("decoder_input_ids", batch["input_ids"])
        if words.shape[1] == output.shape[1]:
            return functional.cross_entropy(output.flatten(0, 1), words.flatten(), reduction=reduction)
    return functional.mse_loss(output, torch.full_like(output, 0.3), reduction=reduction)


def _optimizer(model: Any, setting: Setting) -> torch.optim.Optimizer:  # noqa: ANN401
    trained = [one for one in model.parameters() if one.requires_grad]
    return torch.optim.AdamW(
        trained, lr=setting.rate, betas=setting.betas, weight_decay=setting.decay, eps=1e-6, foreach=False
    )


def _step(model: Any, optimizer: torch.optim.Optimizer, setting: Setting) -> None:  # noqa: ANN401
    if setting.clip is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), setting.clip)
    optimizer.step()


@contextlib.contextmanager
def alone(_: Any) -> Any:  # noqa: ANN401
    """Surround a step with nothing."""
    yield


def dump(built: Built, wanted: Wanted, setting: Setting, folder: Path) -> None:
    """Run a model, and leave its dump in a folder."""
    if setting.coarse:  # before msprobe wraps operators: what they are given is recorded as it was
        multiply_coarsely(setting.coarse)
        setting = setting.but(coarse="")
    if wanted.level in MSIT:
        _dump_like_msit(built, wanted, setting, folder)
    else:
        _dump_by_msprobe(built, wanted, setting, folder)


def _dump_like_msit(built: Built, wanted: Wanted, setting: Setting, folder: Path) -> None:
    tensors = wanted.task == "tensor"
    parts = Parts(tensors=tensors, statistics=not tensors, weights=wanted.level == "msit_weights")
    recorder, watched = Recorder(folder, parts), list[Any]()

    @contextlib.contextmanager
    def recorded(model: Any) -> Any:  # noqa: ANN401
        if not watched:
            recorder.watch(model)
            watched.append(model)
        yield

    run(built, wanted.mode, setting, recorded)


def _dump_by_msprobe(built: Built, wanted: Wanted, setting: Setting, folder: Path) -> None:
    from msprobe.pytorch import PrecisionDebugger

    forward_only = wanted.mode in {"fwd", "gen"}
    asked = {
        "task": wanted.task,
        "dump_path": str(folder),
        "rank": [],
        "step": [],
        "level": wanted.level,
        wanted.task: {"scope": [], "list": [], "data_mode": ["forward"] if forward_only else ["all"]},
    }
    with tempfile.TemporaryDirectory() as own:
        file = Path(own) / "config.json"
        file.write_text(json.dumps(asked), encoding="utf-8")
        debugger = PrecisionDebugger(config_path=str(file))

        @contextlib.contextmanager
        def recorded(model: Any) -> Any:  # noqa: ANN401
            debugger.start(model=model, rank_id=wanted.rank)
            yield
            debugger.stop()
            debugger.step()

        run(built, wanted.mode, setting, recorded)
    if not wanted.several:
        tidy(folder)


def tidy(folder: Path) -> None:
    """Remove call stacks, which nothing asks for, and empty folders from a dump of msprobe."""
    for stack in folder.rglob("stack.json"):
        stack.unlink()
    for empty in folder.rglob("dump_tensor_data"):
        if not any(empty.iterdir()):
            shutil.rmtree(empty)
