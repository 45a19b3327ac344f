"""Operators as torch runs them, one at least for each entry of the registry that has an error model.

An operator is what the registry calls it, what it does, and the shapes of its inputs, a letter for each
dimension.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import torch
from torch.nn import functional

from firstdrift.operators.kinds import ErrorModel
from firstdrift.operators.properties import error_model

Tensor = torch.Tensor


class Operator(NamedTuple):
    """An operator.

    Attributes:
        called: what the registry knows it by.
        apply: what it does.
        shapes: of its inputs, a letter for each dimension, a word for each input.
        positive: places of the inputs that it takes a root of, or divides by.
        number: a power that it raises to.
        roles: what its inputs are called, where that matters.
        adds_up: the letter of the dimension whose elements it adds up, in some order.
    """

    called: str
    apply: Callable[..., Tensor]
    shapes: str
    positive: tuple[int, ...] = ()
    number: float | None = None
    roles: str = ""
    adds_up: str = ""

    @property
    def model(self) -> ErrorModel:
        """What it does to errors."""
        return error_model(self.called)


def normalised(norm: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a norm of the last dimension."""
    return lambda x, *weights: norm(x, x.shape[-1:], *weights, eps=1e-5)


def _cross_entropy(x: Tensor) -> Tensor:
    return functional.cross_entropy(x, torch.arange(x.shape[0]) % x.shape[1])


def _every_third(a: Tensor) -> Tensor:
    return torch.arange(a.shape[-1]) % 3 == 0


def _where(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(_every_third(a), a, b)


def _rotary(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    turned = torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), -1)
    return x * cosine.detach() + turned * sine.detach()


def _ids(count: int, of: int) -> Tensor:
    return torch.arange(count) * 7 % of


def _embedding(weight: Tensor) -> Tensor:
    return functional.embedding(_ids(2 * weight.shape[0], weight.shape[0]), weight)


def _embedding_bag(weight: Tensor) -> Tensor:
    return functional.embedding_bag(torch.arange(weight.shape[0]).reshape(1, -1), weight, mode="mean")


def _gather(x: Tensor) -> Tensor:
    return torch.gather(x, -1, _ids(x.numel(), x.shape[-1]).reshape(x.shape))


def _scatter_add(x: Tensor, other: Tensor) -> Tensor:
    return x.scatter_add(-1, torch.zeros(other.shape, dtype=torch.int64), other)


def _index_add(x: Tensor, other: Tensor) -> Tensor:
    return x.index_add(0, _ids(other.shape[0], x.shape[0]), other)


def _experts(x: Tensor, weight: Tensor) -> Tensor:
    return torch.einsum("brk,bkw->brw", x, weight)


_TRAINING: Final = (True,)


def _channels(norm: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, weight, bias: norm(x, None, None, weight, bias, *_TRAINING)


def _by_statistics(x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.batch_norm(x, mean.detach(), variance.detach(), weight, bias)


def _group_norm(x: Tensor, *weights: Tensor) -> Tensor:
    return functional.group_norm(x, 1, *weights)


def _conv(x: Tensor, *weights: Tensor) -> Tensor:
    return functional.conv2d(x, *weights, padding=1)


_WEIGHTS: Final = "input weight bias"

OPERATORS: Final = {
    "add": Operator("add", torch.add, "rw rw"),
    "add a bias": Operator("iadd", torch.add, "brw w"),
    "sub": Operator("sub", torch.sub, "rw rw"),
    "rsub": Operator("rsub", torch.rsub, "rw rw"),
    "lerp": Operator("lerp", lambda a, b: torch.lerp(a, b, 0.3), "rw rw"),
    "addcmul": Operator("addcmul", torch.addcmul, "rw rw rw"),
    "index_add": Operator("index_add", _index_add, "cw rw"),
    "abs": Operator("abs", torch.abs, "rw"),
    "neg": Operator("neg", torch.neg, "rw"),
    "cat": Operator("cat", lambda *given: torch.cat(given), "rw kw"),
    "split": Operator("split", lambda x: torch.split(x, 2, -1)[0], "rw"),
    "cast": Operator("_to_copy", lambda x: x.to(torch.float32), "rw"),
    "float": Operator("float", lambda x: x.float(), "rw"),
    "clone": Operator("clone", torch.clone, "rw"),
    "reshape": Operator("reshape", lambda x: x.reshape(-1), "rw"),
    "expand": Operator("expand", lambda x: x.expand(3, *x.shape), "rw"),
    "flatten": Operator("Flatten", torch.flatten, "brw"),
    "repeat_interleave": Operator("repeat_interleave", lambda x: x.repeat_interleave(3, 0), "rw"),
    "dropout": Operator("dropout", lambda x: torch.where(_every_third(x), x / 0.9, 0.0), "rw"),
    "dropout of channels": Operator("Dropout2d", lambda x: torch.where(_every_third(x), x / 0.9, 0.0), "rw"),
    "transpose": Operator("transpose", lambda x: x.transpose(0, 1), "rw"),
    "permute": Operator("permute", lambda x: x.permute(2, 0, 1), "brw"),
    "index_select": Operator("index_select", lambda x: x.index_select(0, _ids(3, x.shape[0])), "rw"),
    "embedding": Operator("embedding", _embedding, "rw"),
    "embedding_bag": Operator("embedding_bag", _embedding_bag, "rw"),
    "gather": Operator("gather", _gather, "rw"),
    "pad": Operator("pad", lambda x: functional.pad(x, (1, 2)), "rw"),
    "scatter_add": Operator("scatter_add", _scatter_add, "rw rw"),
    "copy_": Operator("copy_", lambda x, other: torch.zeros_like(x).copy_(other), "rw rw"),
    "masked_fill": Operator("masked_fill", lambda x: x.masked_fill(_every_third(x), 0.0), "rw"),
    "where": Operator("where", _where, "rw rw"),
    "interpolate": Operator(
        "interpolate", lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"), "bchh"
    ),
    "downsample": Operator(
        "interpolate", lambda x: functional.interpolate(x, size=1, mode="bilinear"), "bchh"
    ),
    "identity": Operator("IdentityModule", lambda x: x * 1.0, "rw"),
    "gelu": Operator("gelu", functional.gelu, "rw"),
    "softplus": Operator("softplus", functional.softplus, "rw"),
    "mish": Operator("mish", functional.mish, "rw"),
    "silu": Operator("silu", functional.silu, "rw"),
    "sin": Operator("sin", torch.sin, "rw"),
    "cos": Operator("cos", torch.cos, "rw"),
    "sigmoid": Operator("sigmoid", torch.sigmoid, "rw"),
    "tanh": Operator("tanh", torch.tanh, "rw"),
    "elu": Operator("elu", functional.elu, "rw"),
    "logsigmoid": Operator("logsigmoid", functional.logsigmoid, "rw"),
    "relu": Operator("relu", torch.relu, "rw"),
    "leaky_relu": Operator("leaky_relu", functional.leaky_relu, "rw"),
    "clamp": Operator("clamp", lambda x: torch.clamp(x, -0.5, 1.0), "rw"),
    "hardtanh": Operator("hardtanh", functional.hardtanh, "rw"),
    "hardswish": Operator("hardswish", functional.hardswish, "rw"),
    "hardsigmoid": Operator("hardsigmoid", functional.hardsigmoid, "rw"),
    "max": Operator("max", lambda x: x.max(-1).values, "rw"),
    "topk": Operator("topk", lambda x: x.topk(2, -1).values, "rw"),
    "max_pool": Operator("max_pool2d", lambda x: functional.max_pool2d(x, 2), "bchh"),
    "sum": Operator("sum", lambda x: x.sum(-1), "rw", adds_up="w"),
    "sum of all": Operator("sum", torch.sum, "rw", adds_up="w"),
    "cumsum": Operator("cumsum", lambda x: x.cumsum(-1), "rw"),
    "mean": Operator("mean", lambda x: x.mean(-1), "rw", adds_up="w"),
    "mean of all": Operator("mean", torch.mean, "rw", adds_up="w"),
    "mse_loss": Operator("mse_loss", functional.mse_loss, "rw rw", adds_up="w"),
    "mse_loss, each": Operator(
        "mse_loss", lambda *given: functional.mse_loss(*given, reduction="none"), "rw rw"
    ),
    "l1_loss": Operator("l1_loss", functional.l1_loss, "rw rw", adds_up="w"),
    "smooth_l1_loss": Operator("smooth_l1_loss", functional.smooth_l1_loss, "rw rw", adds_up="w"),
    "mul": Operator("mul", torch.mul, "rw rw"),
    "mul by a row": Operator("imul", torch.mul, "brw w"),
    "div": Operator("div", torch.div, "rw rw", positive=(1,)),
    "div by a row": Operator("div", torch.div, "brw w", positive=(1,)),
    "square": Operator("pow", lambda x: x**2, "rw", number=2.0),
    "cube": Operator("pow", lambda x: x**3, "rw", number=3.0),
    "sqrt": Operator("sqrt", torch.sqrt, "rw", positive=(0,)),
    "rsqrt": Operator("rsqrt", torch.rsqrt, "rw", positive=(0,)),
    "linear": Operator("linear", functional.linear, "brk wk w", adds_up="k"),
    "lm_head": Operator("lm_head", functional.linear, "brk wk", adds_up="k"),
    "addmm": Operator("addmm", torch.addmm, "rw rk kw", adds_up="k"),
    "matmul": Operator("matmul", torch.matmul, "brk bkw", adds_up="k"),
    "outer": Operator("outer", torch.outer, "k w"),
    "mv": Operator("mv", torch.mv, "rk k", adds_up="k"),
    "dot": Operator("dot", torch.dot, "w w", adds_up="w"),
    "grouped_matmul": Operator("npu_grouped_matmul", _experts, "brk bkw", adds_up="k"),
    "conv1d": Operator("conv1d", functional.conv1d, "bcw kc2 k", adds_up="c"),
    "conv2d": Operator("conv2d", _conv, "bchh kc33 k", adds_up="c"),
    "convolution": Operator("convolution", _conv, "bchh kc33", adds_up="c"),
    "conv_transpose2d": Operator("conv_transpose2d", functional.conv_transpose2d, "bchh ck33 k", adds_up="c"),
    "softmax": Operator("softmax", lambda x: x.softmax(-1), "rw", adds_up="w"),
    "exp": Operator("exp", torch.exp, "rw"),
    "exp2": Operator("exp2", torch.exp2, "rw"),
    "expm1": Operator("expm1", torch.expm1, "rw"),
    "sinh": Operator("sinh", torch.sinh, "rw"),
    "sinusoid": Operator("sinusoid", lambda x: torch.cat((x.sin(), x.cos()), -1), "rw"),
    "rotary": Operator("npu_rotary_mul", _rotary, "brw rw rw"),
    "log_softmax": Operator("log_softmax", lambda x: x.log_softmax(-1), "rw"),
    "logsumexp": Operator("logsumexp", lambda x: x.logsumexp(-1), "rw", adds_up="w"),
    "cross_entropy": Operator("cross_entropy", _cross_entropy, "rw"),
    "layer_norm": Operator("layer_norm", normalised(functional.layer_norm), "brn n n", roles=_WEIGHTS),
    "batch_norm": Operator("batch_norm", _channels(functional.batch_norm), "bcss c c", roles=_WEIGHTS),
    "group_norm": Operator("group_norm", _group_norm, "bcss c c", roles=_WEIGHTS),
    "instance_norm": Operator(
        "instance_norm", _channels(functional.instance_norm), "bcss c c", roles=_WEIGHTS
    ),
    "batch_norm by statistics": Operator(
        "batch_norm",
        _by_statistics,
        "bcss c c c c",
        positive=(2,),
        roles="input running_mean running_var weight bias training",
    ),
    "rms_norm": Operator("rms_norm", normalised(functional.rms_norm), "brn n", roles="input weight"),
    "norm": Operator("norm", torch.linalg.vector_norm, "rw", adds_up="w"),
}
"""By what a reader calls them."""
