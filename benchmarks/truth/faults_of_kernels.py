"""Faults of kernels: an operator gives the wrong result for the right inputs."""

from collections.abc import Callable

import torch
from kernels import RAW, Clock, WrongGradient, change_operator, change_softmax
from planting import SOURCE, Site, Truth
from table_of_faults import TRAINING, fault, weight_of
from torch import Tensor, nn


def _times(factor: float) -> Callable[[Tensor], Tensor]:
    return lambda result: RAW.mul(result, factor)


@fault()
def scale_output_102(site: Site) -> Truth:
    """A kernel gives 1.02 times what is right."""
    name, module = site.linear()
    change_operator(weight_of(module), _times(1.02))
    return Truth(name, SOURCE)


@fault()
def scale_output(site: Site) -> Truth:
    """A kernel gives 1.1 times what is right."""
    name, module = site.linear()
    change_operator(weight_of(module), _times(1.1))
    return Truth(name, SOURCE)


@fault("gen")
def late_token(site: Site) -> Truth:
    """A kernel is wrong at the last word only."""
    name, module = site.linear()
    step = site.dice.one_of((2, 3))
    change_operator(weight_of(module), lambda result: RAW.mul(result, 1.1) if Clock.step == step else result)
    return Truth(name, SOURCE, step=step)


@fault()
def dropout_on(site: Site) -> Truth:
    """A tenth of what a product gives is dropped."""
    name, module = site.linear()

    def drop(result: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(7)
        kept = RAW.rand(result.shape, generator=generator) > 0.1
        return RAW.mul(result, torch._C.TensorBase.to(kept, result.dtype) / 0.9)  # noqa: SLF001

    change_operator(weight_of(module), drop)
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

    change_operator(weight_of(module), spoil)
    return Truth(name, ("source", "non-finite"))


@fault(full_precision=True)
def module_in_fp16(site: Site) -> Truth:
    """One product is done in float16."""
    name, module = site.linear()
    to = torch._C.TensorBase.to  # noqa: SLF001
    half = lambda given: to(to(given, torch.float16), given.dtype)  # noqa: E731
    change_operator(weight_of(module), half, half)
    return Truth(name, SOURCE)


@fault(*TRAINING)
def bw_kernel(site: Site) -> Truth:
    """The backward pass of one product gives its input too large a gradient."""
    last = next(name for name in reversed(site.ran) if name)
    name, module = site.choose(
        lambda name, one: isinstance(one, nn.Linear) and name != last and not site.is_tied(name)
    )
    change_operator(weight_of(module), lambda result: result, lambda given: WrongGradient.apply(given, 1.1))
    return Truth(name, SOURCE, backward=True)


@fault(full_precision=True)
def softmax_low(site: Site) -> Truth:
    """Softmax rounds to bfloat16."""
    name, module = site.choose(lambda _, one: "ttention" in type(one).__name__)
    change_softmax(module)
    return Truth(name, SOURCE, ops="softmax")
