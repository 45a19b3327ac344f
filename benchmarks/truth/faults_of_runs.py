"""Faults of the run: what is trained, the loss, the optimizer, and what the model is given."""

from typing import Any

from planting import SHAPED, SOURCE, WEIGHTS, NotHereError, Site, Truth
from table_of_faults import TRAINING, fault, weight_of
from torch import nn


@fault(*TRAINING)
def frozen(site: Site) -> Truth:
    """One weight is not trained."""
    if site.level == "L1":  # of which no gradient of a weight is recorded
        raise NotHereError
    name, module = site.linear()
    weight_of(module).requires_grad_(False)  # noqa: FBT003
    return Truth(name, SHAPED, backward=True)


@fault(*TRAINING)
def loss_sum(site: Site) -> Truth:
    """The loss is a sum and not a mean."""
    site.setting.reduction = "sum"
    last = next(name for name in reversed(site.ran) if name)
    return Truth("", SHAPED, ops="cross_entropy|mse_loss", also=(last,))


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


@fault(full_precision=True)
def dropout_everywhere(site: Site) -> Truth:
    """The target drops a tenth wherever the model has a dropout, as in training."""
    dropouts = [
        one for name, one in site.model.named_modules() if name in site.ran and type(one) is nn.Dropout
    ]
    if len(dropouts) < 2:
        raise NotHereError
    for dropout in dropouts:
        dropout.p = 0.1
        dropout.train()
    return Truth(None, SOURCE, systematic="dropout")


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
