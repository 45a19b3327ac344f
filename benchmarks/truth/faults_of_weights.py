"""Faults of weights: those of one module, or all."""

from collections.abc import Callable

import torch
from planting import SHAPED, SOURCE, WEIGHTS, NotHereError, Site, Truth
from rounding import change_weights, to_bfloat16, to_int8
from table_of_faults import fault, weight_of
from torch import Tensor, nn


def _changed_weight(
    site: Site, change: Callable[[Tensor], Tensor], *, square: bool = False, told: bool = True
) -> Truth:
    name, module = site.linear(square=square)
    with torch.no_grad():
        weight_of(module).copy_(change(weight_of(module)))
    return Truth(name, WEIGHTS if told or site.task == "tensor" else (*WEIGHTS, *SOURCE))


@fault()
def missing_bias(site: Site) -> Truth:
    """One bias is all zeros."""
    name, module = site.linear(bias=True)
    with torch.no_grad():
        module.bias.zero_()
    return Truth(name, WEIGHTS)


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
        and weight_of(site.model.get_submodule(other)).shape == weight_of(module).shape
        and not site.is_tied(other)
    ]
    if not others:
        raise NotHereError
    other = site.dice.one_of(others)
    first, second = weight_of(module), weight_of(site.model.get_submodule(other))
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
        weight_of(module)[words.flatten()[:3]] *= 1.5
    return Truth(name, WEIGHTS)


@fault()
def untied(site: Site) -> Truth:
    """The head has not the weight of the embedding that it should share."""
    name, module = site.choose(
        lambda name, one: isinstance(one, nn.Linear) and site.is_tied(name) and site.ran.count(name) == 1
    )
    own = weight_of(module).detach()
    module.weight = nn.Parameter(own.clone() + 0.02 * torch.randn_like(own))
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
        weight_of(module)[0] += 0.5
    return Truth(name, WEIGHTS)


@fault()
def batch_statistics(site: Site) -> Truth:
    """A batch norm has another mean."""
    name, module = site.choose(lambda _, one: isinstance(one, nn.BatchNorm2d | nn.BatchNorm1d))
    with torch.no_grad():
        module.running_mean.add_(0.2)
    return Truth(name, (*SOURCE, *WEIGHTS))


def _other_weights(site: Site, rule: str, other: Callable[[Tensor], Tensor]) -> Truth:
    change_weights(site.model, other)
    return Truth(None, WEIGHTS, systematic=rule)


@fault(full_precision=True)
def weights_bf16(site: Site) -> Truth:
    """Every weight was rounded to bfloat16."""
    return _other_weights(site, "rounded", to_bfloat16)


@fault(full_precision=True)
def weights_int8(site: Site) -> Truth:
    """Every weight was rounded to 8 bits, row by row."""
    return _other_weights(site, "quantised", to_int8)


@fault(full_precision=True)
def weights_scaled(site: Site) -> Truth:
    """Every weight is a quarter larger."""
    return _other_weights(site, "scaled", lambda weight: 1.25 * weight)


@fault(full_precision=True)
def weights_other(site: Site) -> Truth:
    """Another checkpoint was loaded: every weight is off by a tenth."""
    return _other_weights(
        site,
        "replaced",
        lambda weight: weight + 0.1 * weight.square().mean().sqrt() * torch.randn_like(weight),
    )
