"""First-order error bounds: how large an output error the errors of its inputs explain, operator by operator.

    |d output|  <=  sum of |d output / d input| x |d input|          each input off by one rounding at least

| model       | forward                                        | backward: gradient g, that of x is q        |
| ----------- | ---------------------------------------------- | ------------------------------------------- |
| additive    | sum of |dx|                                    | |dg|, added up where x was spread           |
| smooth      | the same                                       | |dg| + |g| rms of dx                        |
| saturating  | the same                                       | |dg| + 2 |g| rms of dy                      |
| kinked      | the same                                       | |dg| + root of 2 x flips x largest error    |
| summed      | |dx| x root of the terms; of a whole, |sum dx| | |dg|, spread over the terms                 |
| averaged    | the same, over the number of terms             | the same, over the number of terms          |
| distance    | the same; of a sum not over it                 | the same, and signs that flip               |
| huber       | the same, at most root of 2 sum of terms |dx|  | the same, and |dx| max|g|                   |
| squared     | 2 |d| |dx| + |dx|^2, over the number of terms  | |q| (e(g) + |dx| / |d|), d the difference   |
| multiplied  | |da| x max|b| + |db| x max|a|                  | (|dg| |b| + |g| |db|), b by its largest     |
| and added   | the same + |dx| of what it is added to         | the same                                    |
| divided     | |da| / min|b| + |db| max|a / b| / min|b|       | (|dg| + |g| rms of d slope) over b          |
| power       | |dx| x largest of p |x|^(p - 1)                | |g| x the same                              |
| root        | the same; at most root of the sum of |dx|      | the same                                    |
| product     | |da| |b| + |db| |a|, as random errors add up   | the same of g and the other factor          |
| convolved   | the same, as often as the kernel is laid on    | the same                                    |
| exponential | max|dx|, relative to the output                | 2 |g| max y x (relative errors of g and y)  |
| logarithmic | 2 max|dx| for each element                     | of a mean: max|dx| |g| / root of the rows   |
| centred     | |dx| / deviation of small rows x |y| + |dw|    | |g| max|w| / deviation x (e(g) + e(x))      |
| scaled      | |dx| / rms of small rows x |y| + |dw|          | |g| max|w| / rms x (e(g) + e(x) + e(w))     |

Where elements are multiplied or divided one by one, no factor brings more than its largest relative error.
Where the slope jumps, as at the zero of relu, the elements within the error of the kink flip: their gradients
are others. Of n elements that spread by their deviation these are n x rms of dx / deviation, one at least.

Norms are L2 over whole tensors; the result is relative to the norm of the golden output. Of a random matrix
a product keeps the relative error; what it cancels out shows in |a| |b| / |output|. The rounding of each
operator is in it because no input is taken to be closer than one unit roundoff (Higham, Accuracy and
Stability of Numerical Algorithms, 3.1 and 3.5). The gradients of the weights of a norm are sums over all
rows, n of them, which kernels may add up in the dtype of the tensors: u of each partial sum, and n u of the
last one (the same, 4.2).
"""

import math
from collections.abc import Mapping
from typing import Final

from firstdrift.operators.kinds import ErrorModel
from firstdrift.verdict import (
    elementwise_errors,
    exponential_errors,
    norm_errors,
    product_errors,
    sum_errors,
)
from firstdrift.verdict.error_terms import Law, Value, Values

__all__ = ["Value", "Values", "backward_bound", "forward_bound", "has_bound"]

_LAWS: Final[Mapping[ErrorModel, Law]] = {
    **elementwise_errors.LAWS,
    **sum_errors.LAWS,
    **product_errors.LAWS,
    **exponential_errors.LAWS,
    **norm_errors.LAWS,
}


def forward_bound(model: ErrorModel, given: Values, made: Value) -> float:
    """Return the relative error of an output that the errors of the inputs explain; 0 where no model says.

    Args:
        model: what the operator does to errors.
        given: its inputs, weights among them.
        made: the output.
    """
    law = _LAWS.get(model)
    return _relative(law.forward(given, made), made) if law is not None and given else 0.0


def backward_bound(model: ErrorModel, gradients: Values, kept: Values, result: Values, made: Value) -> float:
    """Return the relative error of a gradient that is explained; 0 where no model says.

    Args:
        model: what the operator does to errors.
        gradients: what the backward operator was given.
        kept: the inputs of the forward operator, weights among them.
        result: the outputs of the forward operator.
        made: the gradient that it gives; its key is that of the input that it is the gradient of.
    """
    law = _LAWS.get(model)
    if law is None or not gradients:
        return 0.0
    return _relative(sum(law.backward(one, kept, result, made) for one in gradients), made)


def has_bound(model: ErrorModel) -> bool:
    """Tell whether a model bounds what the forward and the backward operator give."""
    return model in _LAWS


def _relative(difference: float, made: Value) -> float:
    if not made.norm:
        return math.inf if difference else 0.0
    return difference / made.norm
