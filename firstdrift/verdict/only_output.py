"""From where on the only output that can be compared is bad: there is nothing else to hold it against.

| the output                                | bad above                                                      |
| ----------------------------------------- | -------------------------------------------------------------- |
| anything                                  | 128 u of its dtype, at least 10^-3 and at most 0.25            |
| logits, cosine or KL beyond msit's limits | 0: that is what its users go by (cosine 0.999; KL by dtype)    |

KL is limited for one token: of several, their mean counts, as the worst of many is larger in healthy runs.
u is the unit roundoff of the coarser dtype; of float32 values that came from a 16-bit format, of that.
The output of a token is held against those of the tokens before it, and is bad by itself above 0.25 only.
So is one beside which other nodes have no partner, as it may be another quantity.
"""

from firstdrift.metrics.measurement import Measurement
from firstdrift.verdict.case import Case
from firstdrift.verdict.movable_thresholds import Thresholds
from firstdrift.wording.message import Message


def only_output_limit(case: Case) -> float:
    """Return the error up to which the only output of a pair of slices is not bad."""
    pair, limits = case.error.output_pair, case.limits
    plan = case.evidence.plan
    is_all = not (plan.unmatched_golden or plan.unmatched_target)
    if plan.target.coordinates.token is not None or not is_all:
        return max(limits.hidden_floor * case.roundoff, limits.alone_floor)
    if pair is not None and beyond_limits(case.evidence.measurements[pair], limits, case.roundoff):
        return 0.0
    return min(limits.alone_floor, limits.drift(case.roundoff))


def beyond_limits(measured: Measurement, limits: Thresholds, roundoff: float) -> tuple[Message, ...]:
    """Say how logits are beyond the limits that msit's guide gives for them; nothing if they are not."""
    if measured.logits is None or measured.errors is None:
        return ()
    found = []
    cosine, divergence = measured.errors.cosine_similarity, measured.logits.kl_divergence
    if cosine is not None and cosine <= limits.msit_cosine:
        found.append(Message.of("tool.cosine", cosine=cosine, limit=limits.msit_cosine))
    is_coarse = roundoff >= limits.roundoff_bfloat16
    most = limits.msit_kl_bfloat16 if is_coarse else limits.msit_kl
    if divergence >= most:
        found.append(Message.of("tool.kl_divergence", kl_divergence=divergence, limit=most))
    return tuple(found)
