"""The faults that are planted into the target run, each with its truth."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from kernels import RAW, Clock, WrongGradient, change_operator, change_softmax
from planting import SHAPED, SOURCE, WEIGHTS, NotHereError, Site, Truth, first_float
from torch import Tensor, nn

Plant = Callable[[Site], Truth]
ANY: Final = ("fwd", "train", "steps", "gen")
TRAINING: Final = ("train", "steps")


@dataclass(frozen=True)
class Fault:
    """A kind of fault, and in which ways of running a model it can show."""

    kind: str
    plant: Plant
    modes: tuple[str, ...]
    full_precision: bool
    """Whether it can show only if both runs are in fp32."""


FAULTS: Final[dict[str, Fault]] = {}


def fault(*modes: str, full_precision: bool = False) -> Callable[[Plant], Plant]:
    """Enter a function into the table of faults, by its name."""

    def enter(plant: Plant) -> Plant:
        kind = plant.__name__
        FAULTS[kind] = Fault(kind, plant, modes or ANY, full_precision)
        return plant

    return enter


def _weight(module: nn.Module) -> nn.Parameter:
    return module.weight


def _times(factor: float) -> Callable[[Tensor], Tensor]:
    return lambda result: RAW.mul(result, factor)


@fault()
def scale_output_102(site: Site) -> Truth:
    """A kernel gives 1.02 times what is right."""
    name, module = site.linear()
    change_operator(_weight(module), _times(1.02))
    return Truth(name, SOURCE)


@fault()
def scale_output(site: Site) -> Truth:
    """A kernel gives 1.1 times what is right."""
    name, module = site.linear()
    change_operator(_weight(module), _times(1.1))
    return Truth(name, SOURCE)


@fault("gen")
def late_token(site: Site) -> Truth:
    """A kernel is wrong at the last word only."""
    name, module = site.linear()
    step = site.dice.one_of((2, 3))
    change_operator(_weight(module), lambda result: RAW.mul(result, 1.1) if Clock.step == step else result)
    return Truth(name, SOURCE, step=step)


@fault()
def dropout_on(site: Site) -> Truth:
    """A tenth of what a product gives is dropped."""
    name, module = site.linear()

    def drop(result: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(7)
        kept = RAW.rand(result.shape, generator=generator) > 0.1
        return RAW.mul(result, torch._C.TensorBase.to(kept, result.dtype) / 0.9)  # noqa: SLF001

    change_operator(_weight(module), drop)
    return Truth(name, SOURCE)


@fault()
def not_finite(site: Site) -> Truth:
    """One number of a result is NaN, or infinite."""
    name, module = site.linear()
    number = site.dice.one_of((float("nan"), float("inf")))

    def spoil(result: Tensor) -> Tensor:
        spoilt = RAW.zeros_like(result)
        torch._C.TensorBase.fill_(torch._C.TensorBase.__getitem__(spoilt.view(-1), 0), number)  # noqa: SLF001
        return RAW.add(result, spoilt)

    change_operator(_weight(module), spoil)
    return Truth(name, ("source", "non-finite"))


@fault(full_precision=True)
def module_in_fp16(site: Site) -> Truth:
    """One product is done in float16."""
    name, module = site.linear()
    to = torch._C.TensorBase.to  # noqa: SLF001
    half = lambda given: to(to(given, torch.float16), given.dtype)  # noqa: E731
    change_operator(_weight(module), half, half)
    return Truth(name, SOURCE)


@fault(*TRAINING)
def bw_kernel(site: Site) -> Truth:
    """The backward pass of one product gives its input too large a gradient."""
    last = next(name for name in reversed(site.ran) if name)
    name, module = site.choose(
        lambda name, one: isinstance(one, nn.Linear) and name != last and not site.is_tied(name)
    )
    change_operator(_weight(module), lambda result: result, lambda given: WrongGradient.apply(given, 1.1))
    return Truth(name, SOURCE, backward=True)


@fault(*TRAINING)
def frozen(site: Site) -> Truth:
    """One weight is not trained."""
    name, module = site.linear()
    _weight(module).requires_grad_(False)  # noqa: FBT003
    return Truth(name, SHAPED, backward=True)


@fault()
def missing_bias(site: Site) -> Truth:
    """One bias is all zeros."""
    name, module = site.linear(bias=True)
    with torch.no_grad():
        module.bias.zero_()
    return Truth(name, WEIGHTS)


def _changed_weight(
    site: Site, change: Callable[[Tensor], Tensor], *, square: bool = False, told: bool = True
) -> Truth:
    name, module = site.linear(square=square)
    with torch.no_grad():
        _weight(module).copy_(change(_weight(module)))
    return Truth(name, WEIGHTS if told or site.task == "tensor" else (*WEIGHTS, *SOURCE))


@fault()
def weight_scaled(site: Site) -> Truth:
    """One weight is 1.1 times what it should be."""
    return _changed_weight(site, lambda weight: weight * 1.1)


@fault()
def weight_zero(site: Site) -> Truth:
    """One weight is all zeros."""
    return _changed_weight(site, torch.zeros_like)


@fault()
def weight_sign(site: Site) -> Truth:
    """One row of a weight has the other sign."""
    return _changed_weight(site, lambda weight: torch.cat((-weight[:1], weight[1:])), told=False)


@fault()
def weight_rows(site: Site) -> Truth:
    """Two rows of a weight changed places."""
    return _changed_weight(site, lambda weight: torch.cat((weight[1:2], weight[:1], weight[2:])), told=False)


@fault()
def weight_transposed(site: Site) -> Truth:
    """One square weight is transposed."""
    return _changed_weight(site, lambda weight: weight.transpose(0, 1).clone(), square=True, told=False)


@fault()
def lora_missing(site: Site) -> Truth:
    """A change of low rank was not added to one weight."""

    def without(weight: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(11)
        flat = weight.reshape(len(weight), -1)
        delta = torch.randn(len(flat), 2, generator=generator) @ torch.randn(
            2, flat.shape[1], generator=generator
        )
        return weight - (delta * (0.1 * flat.norm() / delta.norm())).view_as(weight)

    return _changed_weight(site, without)


@fault()
def swapped_weights(site: Site) -> Truth:
    """Two weights of one shape changed places."""
    name, module = site.linear()
    others = [
        other
        for other in dict.fromkeys(site.ran)
        if other not in {"", name}
        and type(site.model.get_submodule(other)) is type(module)
        and _weight(site.model.get_submodule(other)).shape == _weight(module).shape
        and not site.is_tied(other)
    ]
    if not others:
        raise NotHereError
    other = site.dice.one_of(others)
    first, second = _weight(module), _weight(site.model.get_submodule(other))
    with torch.no_grad():
        kept = first.clone()
        first.copy_(second)
        second.copy_(kept)
    earlier, later = sorted((name, other), key=site.ran.index)
    return Truth(earlier, (*WEIGHTS, *SOURCE) if site.task == "statistics" else WEIGHTS, also=(later,))


@fault()
def experts_swapped(site: Site) -> Truth:
    """Two experts of one weight that has all changed places."""
    name, module = site.choose(
        lambda _, one: any(
            own.dim() == 3 and "xpert" in type(one).__name__ for own in one.parameters(recurse=False)
        )
    )
    parameter = next(own for own in module.parameters(recurse=False) if own.dim() == 3)
    with torch.no_grad():
        parameter.copy_(parameter.roll(1, 0) * 1.05)
    return Truth(name, WEIGHTS)


@fault()
def embedding_row(site: Site) -> Truth:
    """The vectors of some words are wrong."""
    words = site.built.batch.get("input_ids")
    name, module = site.choose(
        lambda name, one: (
            isinstance(one, nn.Embedding)
            and words is not None
            and len(one.weight) > int(words.max())
            and not site.is_tied(name)
        )
    )
    with torch.no_grad():
        _weight(module)[words.flatten()[:3]] *= 1.5
    return Truth(name, WEIGHTS)


@fault()
def untied(site: Site) -> Truth:
    """The head has not the weight of the embedding that it should share."""
    name, module = site.choose(
        lambda name, one: isinstance(one, nn.Linear) and site.is_tied(name) and site.ran.count(name) == 1
    )
    module.weight = nn.Parameter(_weight(module).detach().clone() + 0.02 * torch.randn_like(_weight(module)))
    return Truth(name, (*WEIGHTS, *SHAPED))


@fault()
def router_bias(site: Site) -> Truth:
    """The weight of a router is wrong."""
    name, module = site.choose(
        lambda name, one: (
            name.rpartition(".")[2] in {"gate", "router", "classifier"}
            and getattr(one, "weight", None) is not None
            and one.weight.shape[0] == 4
        )
    )
    with torch.no_grad():
        _weight(module)[0] += 0.5
    return Truth(name, WEIGHTS)


@fault()
def topk_one(site: Site) -> Truth:
    """One expert is chosen instead of two."""
    names = ("top_k", "num_experts_per_tok", "topk", "k", "moe_top_k")
    name, module = site.choose(lambda _, one: any(getattr(one, field, None) == 2 for field in names))
    for field in names:
        if getattr(module, field, None) == 2:
            setattr(module, field, 1)
    parent = name.rpartition(".")[0]
    return Truth(name, SHAPED, also=(parent,) if name.endswith(("gate", "router")) else ())


@fault()
def norm_eps(site: Site) -> Truth:
    """A norm adds a thousandth and not a millionth."""
    fields = ("eps", "variance_epsilon", "epsilon")
    name, module = site.choose(
        lambda name, one: (
            any(isinstance(getattr(one, field, None), float) for field in fields)
            and site.ran.count(name) == 1
        )
    )
    for field in fields:
        if isinstance(getattr(module, field, None), float):
            setattr(module, field, site.dice.one_of((1e-3, 1e-2)))
    return Truth(name, SHAPED)


@fault()
def batch_statistics(site: Site) -> Truth:
    """A batch norm has another mean."""
    name, module = site.choose(lambda _, one: isinstance(one, nn.BatchNorm2d | nn.BatchNorm1d))
    with torch.no_grad():
        module.running_mean.add_(0.2)
    return Truth(name, (*SOURCE, *WEIGHTS))


@fault()
def wrong_activation(site: Site) -> Truth:
    """Another function stands where a module has its activation."""
    kinds = ("gelu", "silu", "relu", "quickgelu", "newgelu", "activation", "swish")
    name, module = site.choose(
        lambda _, one: (
            not list(one.parameters())
            and not list(one.children())
            and any(kind in type(one).__name__.lower() for kind in kinds)
        )
    )
    parent, _, own = name.rpartition(".")
    other = nn.GELU(approximate="tanh") if "silu" in type(module).__name__.lower() else nn.SiLU()
    if type(module).__name__ in {"GELU", "GELUActivation"}:
        other = nn.GELU(approximate="tanh")
    setattr(site.model.get_submodule(parent), own, other)
    return Truth(name, SHAPED, also=(parent,))


@fault()
def no_residual(site: Site) -> Truth:
    """A layer gives only what it adds."""
    if site.level == "L1":  # no operator of its own is wrong
        raise NotHereError
    name, module = site.choose(
        lambda name, one: (
            name in site.same_shape and "Layer" in type(one).__name__ and name.rpartition(".")[2].isdigit()
        )
    )
    right = module.forward

    def without(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        result = right(*args, **kwargs)
        if isinstance(result, Tensor):
            return RAW.sub(result, args[0])
        return (RAW.sub(result[0], args[0]), *result[1:])

    module.forward = without
    return Truth(name, SHAPED)


@fault()
def rotary_base(site: Site) -> Truth:
    """The angles of positions grow at another rate."""
    name, module = site.choose(
        lambda _, one: any("inv_freq" in own for own, _ in one.named_buffers(recurse=False))
    )
    for own, buffer in module.named_buffers(recurse=False):
        if own.endswith("inv_freq"):
            buffer.mul_(torch.linspace(1.0, 0.5, buffer.numel()).view_as(buffer))
    return Truth(name, (*SOURCE, *WEIGHTS))


@fault()
def attention_scale(site: Site) -> Truth:
    """Attention divides by something else."""
    fields = ("scaling", "scale", "softmax_scale", "inv_norm_factor")
    name, module = site.choose(
        lambda _, one: (
            "ttention" in type(one).__name__
            and any(isinstance(getattr(one, field, None), float) for field in fields)
        )
    )
    for field in fields:
        if isinstance(getattr(module, field, None), float):
            setattr(module, field, getattr(module, field) * 1.3)
    return Truth(name, SHAPED)


@fault("fwd", "train", "steps")
def mask_off_by_one(site: Site) -> Truth:
    """Attention sees one word too many."""
    name, module = site.choose(lambda _, one: "Attention" in type(one).__name__)
    right, used = module.forward, []

    def shifted(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        mask = kwargs.get("attention_mask")
        if isinstance(mask, Tensor) and mask.dim() == 4:
            used.append(True)
            kwargs["attention_mask"] = RAW.cat(
                (RAW.narrow(mask, 3, 0, 1), RAW.narrow(mask, 3, 0, mask.shape[3] - 1)), 3
            )
        return right(*args, **kwargs)

    module.forward = shifted
    return Truth(name, SHAPED)


@fault("gen")
def kv_off1(site: Site) -> Truth:
    """The cache of one layer is off by one place from a later word on."""
    name, module = site.attention()
    step = site.dice.one_of((2, 3))

    def roll(number: int, asked: dict[str, Any]) -> None:
        if number != step:
            return
        layer = asked["past_key_values"].layers[module.layer_idx]
        layer.keys = layer.keys.roll(1, -2)

    site.setting.at_step.append(roll)
    return Truth(name, ("source", "structure differs"), step=step)


@fault(full_precision=True)
def softmax_low(site: Site) -> Truth:
    """Softmax rounds to bfloat16."""
    name, module = site.choose(lambda _, one: "ttention" in type(one).__name__)
    change_softmax(module)
    return Truth(name, SOURCE, ops="softmax")


@fault()
def softcap_missing(site: Site) -> Truth:
    """The logits of attention, or the last ones, are not capped."""
    fields = ("attn_logit_softcapping", "softcap", "logit_cap")
    config = getattr(site.model, "config", None)
    if getattr(config, "final_logit_softcapping", None):
        config.final_logit_softcapping = None
        last = next(name for name in reversed(site.ran) if name)
        return Truth("", SHAPED, also=(last,))
    name, module = site.choose(
        lambda _, one: any(isinstance(getattr(one, field, None), float) for field in fields)
    )
    for field in fields:
        if isinstance(getattr(module, field, None), float):
            setattr(module, field, None)
    return Truth(name, SHAPED)


@fault(*TRAINING)
def loss_sum(site: Site) -> Truth:
    """The loss is a sum and not a mean."""
    site.setting.reduction = "sum"
    last = next(name for name in reversed(site.ran) if name)
    return Truth("", SHAPED, ops="cross_entropy|mse_loss", also=(last,))


def _rounded_weights(site: Site, rounded: Callable[[Tensor], Tensor]) -> Truth:
    with torch.no_grad():
        for parameter in site.model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(rounded(parameter))
    return Truth(None, WEIGHTS, systematic=True)


@fault(full_precision=True)
def weights_bf16(site: Site) -> Truth:
    """Every weight was rounded to bfloat16."""
    return _rounded_weights(site, lambda weight: weight.bfloat16().float())


@fault(full_precision=True)
def weights_int8(site: Site) -> Truth:
    """Every weight was rounded to 8 bits, row by row."""

    def rounded(weight: Tensor) -> Tensor:
        unit = weight.flatten(1).abs().amax(1).clamp_min(1e-12) / 127
        unit = unit.view(-1, *[1] * (weight.dim() - 1))
        return (weight / unit).round() * unit

    return _rounded_weights(site, rounded)


@fault()
def wrong_ids(site: Site) -> Truth:
    """Some words are others."""
    name = "input_ids"
    if name not in site.built.batch:
        raise NotHereError

    def other(batch: dict[str, Any]) -> dict[str, Any]:
        words = batch[name].clone()
        words[:, 1:3] = (words[:, 1:3] + 5) % 90
        return {**batch, name: words}

    site.setting.batch = other
    return Truth(None, SOURCE, given=True)


@fault("fwd", "train", "steps")
def batch_permuted(site: Site) -> Truth:
    """The batch has another order."""
    site.setting.batch = lambda batch: {
        key: value.flip(0) if len(value) == 2 else value for key, value in batch.items()
    }
    if not all(len(value) == 2 for value in site.built.batch.values()):
        raise NotHereError
    return Truth(None, SOURCE, given=True)


def _optimizer(site: Site, **changes: Any) -> Truth:  # noqa: ANN401
    for name, value in changes.items():
        setattr(site.setting, name, value)
    return Truth(None, WEIGHTS, optimizer=True)


@fault("steps")
def opt_betas(site: Site) -> Truth:
    """The optimizer has other betas."""
    return _optimizer(site, betas=(0.5, 0.9))


@fault("steps")
def weight_decay(site: Site) -> Truth:
    """The optimizer lets weights decay faster."""
    return _optimizer(site, decay=1.0)


@fault("steps")
def learning_rate(site: Site) -> Truth:
    """The optimizer has another learning rate."""
    return _optimizer(site, rate=4e-3)


@fault("steps")
def clipping(site: Site) -> Truth:
    """The target clips gradients, to a norm that they exceed."""
    return _optimizer(site, clip=1e-5)


def effect_of(clean: list[Any], planted: list[Any]) -> tuple[float, float]:
    """Return how far results are apart, and how far their statistics are, both relative."""
    apart, told = 0.0, 0.0
    if len(clean) != len(planted):
        return float("inf"), float("inf")
    for one, other in zip(clean, planted, strict=True):
        first, second = first_float(one), first_float(other)
        if first is None or second is None:
            continue
        if first.shape != second.shape or not torch.isfinite(second).all():
            return float("inf"), float("inf")
        first, second = first.double(), second.double()
        apart = max(apart, float((second - first).norm() / first.norm().clamp_min(1e-30)))
        told = max(told, *_told(first, second))
    return apart, told


def _told(first: Tensor, second: Tensor) -> list[float]:
    size = float(first.abs().max().clamp_min(1e-30))
    norms = float((second.norm() - first.norm()).abs() / first.norm().clamp_min(1e-30))
    return [
        norms,
        *(float((ask(second) - ask(first)).abs()) / size for ask in (torch.max, torch.min, torch.mean)),
    ]
