"""How one of the two runs is done: its numbers, its kernels, its optimizer, and what it is given."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from rounding import change_weights, to_bfloat16, to_int8
from torch import Tensor, nn

DTYPES: Final = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,
    "wbf16": torch.float32,
    "wint8": torch.float32,
}
"""By name; after "w" that of what every weight was rounded to, though the run computes in fp32."""

ROUNDOFF: Final = {
    "fp64": 2.0**-53,
    "fp32": 2.0**-24,
    "fp16": 2.0**-11,
    "bf16": 2.0**-8,
    "wbf16": 2.0**-8,
    "wint8": 2.0**-6,
}
_ROUNDED: Final = {"wbf16": to_bfloat16, "wint8": to_int8}


@dataclass
class Setting:
    """What may differ between the two runs, besides the model."""

    dtype: str = "fp32"
    autocast: bool = False
    attention: str = "eager"
    blocked: bool = False
    coarse: str = ""
    """How products make TF32 of what they multiply, of `multiply_coarsely`; not at all if empty."""
    channels_last: bool = False
    checkpointing: bool = False
    """Whether layers run again in the backward pass."""
    reduction: str = "mean"
    rate: float = 2e-3
    betas: tuple[float, float] = (0.9, 0.999)
    decay: float = 0.01
    clip: float | None = None
    batch: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    before_update: Callable[[Any], None] | None = None
    """What is done to a model between the backward pass and the optimizer."""
    at_step: list[Callable[[int, Any], None]] = field(default_factory=list)

    @property
    def roundoff(self) -> float:
        """Half the distance between neighbouring numbers near 1."""
        return ROUNDOFF["bf16" if self.autocast else self.dtype]

    def but(self, **changes: Any) -> "Setting":  # noqa: ANN401
        """Return a setting that differs."""
        return replace(self, **changes)


def prepare(model: nn.Module, batch: dict[str, Any], setting: Setting) -> tuple[nn.Module, dict[str, Any]]:
    """Give a model and its batch the numbers and kernels of a setting."""
    dtype = DTYPES[setting.dtype]
    if setting.dtype in _ROUNDED:
        change_weights(model, _ROUNDED[setting.dtype])
    if dtype != torch.float32:
        model = model.to(dtype)
    if setting.channels_last:
        model = model.to(memory_format=torch.channels_last)
    if setting.attention != "eager":
        model.set_attn_implementation(setting.attention)
    if setting.checkpointing:
        _run_layers_again(model)
    given = setting.batch(batch) if setting.batch else batch
    return model, {name: _cast(value, dtype) for name, value in given.items()}


def _cast(value: Any, dtype: torch.dtype) -> Any:  # noqa: ANN401
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value


def _run_layers_again(model: nn.Module) -> None:
    """Let layers run again in the backward pass; only those are in training, so that nothing is dropped."""
    model.gradient_checkpointing_enable({"use_reentrant": False})
    layers = [one for one in model.modules() if getattr(one, "gradient_checkpointing", False)]
    if not layers:
        raise ValueError("no layer can run again")
    for layer in layers:
        layer.training = True
