"""Faults that a model has only where it is spread over ranks, or on one rank alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import torch
from kernels import RAW, change_operator
from planting import SHAPED, SOURCE, WEIGHTS, NotHereError, Site, Truth
from sharding import ColumnParallelLinear, RowParallelLinear, part_of
from table_of_faults import FAULTS, TRAINING, Fault, weight_of
from torch import nn

BOTH: Final = (0, 1)
RANK_FAULTS: Final[dict[str, Fault]] = {}
"""Faults of a model that is spread by columns and rows."""

COPIED: Final = (
    *("weight_scaled", "weight_zero", "weight_rows", "missing_bias", "lora_missing", "norm_eps"),
    *("wrong_activation", "attention_scale", "rotary_base", "scale_output", "scale_output_102"),
    *("dropout_on", "not_finite", "bw_kernel", "topk_one", "embedding_row"),
)
"""Faults that one of two copies of a model can have."""
OTHER_DATA: Final = "dp_other_data"
Plant = Callable[[Site], Truth]


def _fault(*modes: str) -> Callable[[Plant], Plant]:
    def enter(plant: Plant) -> Plant:
        known = modes or ("fwd", "train", "steps")
        RANK_FAULTS[plant.__name__] = Fault(plant.__name__, plant, known, full_precision=False)
        return plant

    return enter


def _sharded(site: Site) -> tuple[str, nn.Module]:
    return site.choose(lambda _, one: isinstance(one, ColumnParallelLinear | RowParallelLinear))


def _told(site: Site) -> tuple[str, ...]:
    """Return what may be said of a wrong shard: parts of a sum tell little by their statistics."""
    return WEIGHTS if site.task == "tensor" else (*WEIGHTS, *SOURCE)


@_fault()
def tp_shard_scaled(site: Site) -> Truth:
    """The shard of one rank is 1.1 times what it should be."""
    name, module = _sharded(site)
    at = site.dice.below(2)
    if site.rank == at:
        with torch.no_grad():
            weight_of(module).mul_(1.1)
    return Truth(name, _told(site), ranks=(at,))


@_fault()
def tp_shard_of_other(site: Site) -> Truth:
    """One rank has the shard of the other."""
    return _other_shards(site, (site.dice.below(2),))


@_fault()
def tp_shards_swapped(site: Site) -> Truth:
    """Each rank has the shard of the other."""
    return _other_shards(site, BOTH)


def _other_shards(site: Site, at: tuple[int, ...]) -> Truth:
    name, module = _sharded(site)
    if site.whole is None:
        raise NotHereError
    dimension = 0 if isinstance(module, ColumnParallelLinear) else 1
    if site.rank in at:
        module.weight = part_of(weight_of(site.whole.get_submodule(name)), 1 - site.rank, dimension)
    return Truth(name, _told(site), ranks=at)


@_fault()
def tp_no_reduce(site: Site) -> Truth:
    """What the ranks give of one product is not summed."""
    name, module = site.choose(lambda _, one: isinstance(one, RowParallelLinear))
    module.reduces = False
    return Truth(name, SHAPED, ranks=BOTH)


@_fault()
def tp_bias_twice(site: Site) -> Truth:
    """Each rank adds the bias, before the sum."""
    name, module = site.choose(lambda _, one: isinstance(one, RowParallelLinear) and one.bias is not None)
    module.adds_early = True
    return Truth(name, SHAPED, ranks=BOTH)


@_fault()
def tp_gather_order(site: Site) -> Truth:
    """What the ranks give of the head is joined in the wrong order."""
    name, module = site.choose(lambda _, one: isinstance(one, ColumnParallelLinear) and one.joined)
    module.in_order = False
    return Truth(name, SHAPED, ranks=BOTH)


@_fault()
def tp_kernel(site: Site) -> Truth:
    """A kernel of one rank gives 1.1 times what is right."""
    name, module = _sharded(site)
    at = site.dice.below(2)
    if site.rank == at:
        change_operator(weight_of(module), lambda result: RAW.mul(result, 1.1))
    return Truth(name, SOURCE, ranks=(at,))


@_fault()
def tp_norm_not_same(site: Site) -> Truth:
    """One rank has another weight in a norm that both should share."""
    name, module = site.choose(
        lambda _, one: "Norm" in type(one).__name__ and getattr(one, "weight", None) is not None
    )
    at = site.dice.below(2)
    if site.rank == at:
        with torch.no_grad():
            weight_of(module).mul_(1.2)
    return Truth(name, WEIGHTS, ranks=(at,))


@_fault(*TRAINING)
def tp_no_backward_reduce(site: Site) -> Truth:
    """The gradients that the ranks have of one input are not summed."""
    name, module = site.choose(lambda _, one: isinstance(one, ColumnParallelLinear))
    module.sums_gradients = False
    return Truth(name, SHAPED, backward=True, ranks=BOTH)


def plant_on_one(kind: str, site: Site) -> Truth:
    """Plant a fault into one of two copies of a model."""
    at = site.dice.below(2)
    if kind == OTHER_DATA:
        return Truth(None, SOURCE, given=True, ranks=(at,))
    if site.rank == at:
        return replace(FAULTS[kind].plant(site), ranks=(at,))
    return Truth(None, (), ranks=(at,))
