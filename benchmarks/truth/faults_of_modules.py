"""Faults of what a module does besides its products: norms, activations, attention, routers."""

from typing import Any

import torch
from kernels import RAW
from planting import SHAPED, SOURCE, WEIGHTS, NotHereError, Site, Truth
from table_of_faults import fault
from torch import Tensor, nn


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
