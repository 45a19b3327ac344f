"""The numbers of the verdict that nobody moves: what each is, in which unit, and where it comes from.

Those that may be moved are in `movable_thresholds.py`.
"""

from typing import Final, NamedTuple

DOCUMENT: Final = "docs/verdict.md"


class FixedThreshold(NamedTuple):
    """A number that follows from a study or from a format.

    Attributes:
        value: the number.
        unit: of what.
        meaning: what it decides.
        place: the heading, or the bold word, of docs/verdict.md where it is described.
    """

    value: float
    unit: str
    meaning: str
    place: str


_ROUNDINGS: Final = "unit roundoffs of float32"

MOST_CANCELLED: Final = FixedThreshold(
    1e3,
    "condition number",
    "A single dot product of which the operands were not recorded may cancel out so far by chance.",
    "The error model of an operator",
)
EXACT_INPUTS: Final = FixedThreshold(
    16, _ROUNDINGS, "Inputs of a product that differ by less agree to float32.", "Coarse products"
)
COARSE_OUTPUT: Final = FixedThreshold(
    32,
    _ROUNDINGS,
    "A product that is off by less was computed in float32.",
    "Coarse products",
)
ALIKE_PRODUCTS: Final = FixedThreshold(
    16,
    "roundings of the coarse format",
    "Products after the first coarse one are off by at most so much; after a fault, by more.",
    "Coarse products",
)
WITNESSES: Final = FixedThreshold(
    3, "products", "So many have to be coarse before the run is taken to be.", "Coarse products"
)
LOOKED_AT: Final = FixedThreshold(
    12, "products", "So many are looked at, the first of the run.", "Coarse products"
)
SUM_ROUNDINGS: Final = FixedThreshold(
    8,
    "roundings of the dtype",
    "The mean of a sum is off from the sum of the means by at most so much, over the root of the size.",
    "Sums",
)
MEAN_ROUNDING: Final = FixedThreshold(
    1e-6, "of the root mean square", "A recorded mean is itself rounded by so much.", "Sums"
)
PEERS: Final = FixedThreshold(2, "nodes", "A node stands out among more peers than this.", "Peers")
ANOTHER_ROW: Final = FixedThreshold(
    0.1,
    "relative L2 error",
    "An embedding that is off by less is hardly that of another token.",
    "Input differs",
)
LOWEST_VALUES: Final = FixedThreshold(
    6e4,
    "absolute value",
    "An argument beyond it masks: the lowest number of float16 is -65504, of wider types far below.",
    "Masks",
)
SAME_ARGUMENT: Final = FixedThreshold(
    1e-6,
    "of the larger",
    "Python arguments that differ by less are the same number, written otherwise.",
    "What a node did to the error",
)
RANK_ALONE: Final = FixedThreshold(
    10,
    "times the error of any other rank",
    "A rank is off by itself if its error is this large.",
    "Ranks",
)
PART_ALONE: Final = FixedThreshold(
    10,
    "times the error of any other part",
    "A part of a tensor that was joined from several is off by itself if its error is this large.",
    "Fused modules",
)
PART_EXPLAINS: Final = FixedThreshold(
    32,
    "roundings of the coarser dtype",
    "One part times a factor explains the statistics of what parts were joined to up to this difference.",
    "Fused modules",
)
LEAST_RANK_ERROR: Final = FixedThreshold(
    1e-3,
    "relative L2 error",
    "Errors of shards below this say nothing about where an error began.",
    "Ranks",
)
MOST_EXPERTS: Final = FixedThreshold(
    1024, "experts", "What is wider is not taken for the scores of a router.", "Ties between experts"
)
MOST_SWAPPED: Final = FixedThreshold(
    0.5, "of the choices", "If more of them are others, they are called no ties.", "Ties between experts"
)
SAME_WEIGHTS: Final = FixedThreshold(
    2.0**-7,
    "of the larger",
    "The statistics of a weight and of what it is rounded to in bfloat16 are apart by at most so much.",
    "Ties between experts",
)
LEAST_TENSORS: Final = FixedThreshold(
    8, "tensors", "Fewer do not tell whether two models are different.", "Different models"
)
OTHER_WIDTHS: Final = FixedThreshold(
    0.5, "of the tensors", "If more have other widths, the models are different.", "Different models"
)
STATISTICS_ROUNDING: Final = FixedThreshold(
    16,
    _ROUNDINGS,
    "Recorded statistics of equal whole numbers, or equal parameters, are apart by at most so much.",
    "The words",
)
NEAR_FORMAT: Final = FixedThreshold(
    2,
    "roundings of the coarse format",
    "Products that are off by less were computed in that format.",
    "Coarse products",
)
LEAST_OF_FORMAT: Final = FixedThreshold(
    0.25,
    "roundings of the coarse format",
    "Products that are off by less were computed in a finer format, where all their values are known.",
    "Coarse products",
)
NOISE_BEFORE: Final = FixedThreshold(
    2,
    "times the worst error before the fault",
    "What a fault has reached is off by more than this.",
    "What follows",
)
MADE_OF: Final = FixedThreshold(
    3,
    "roundings",
    "So many has a row of a weight that is the product of two parameters, as weight norm makes it.",
    "Parameters",
)
EXCHANGED_ROUNDING: Final = FixedThreshold(
    2,
    "roundings",
    "A weight stands in the place of another one if its norm, ends and mean are those to within so many.",
    "Why",
)
MEANS_TELL: Final = FixedThreshold(
    300,
    "times what rounding leaves",
    "An input whose mean is larger is told from other reasons for an output to have another mean.",
    "Why",
)
FEW_ALONE: Final = FixedThreshold(
    0.1,
    "of the operators",
    "If more have no partner, the two runs are of different code, and what one runs alone shows nothing.",
    "An input that nothing explains",
)
UNLIKE_BEFORE: Final = FixedThreshold(
    25,
    "times anything that ran before",
    "In a format coarser than float32 only a fault makes an input so: attention amplifies by its scores.",
    "An input that nothing explains",
)
LEAST_VARIANCE: Final = FixedThreshold(
    1e-6,
    "of the mean square",
    "Norm and mean of a tensor, recorded in float32, tell no smaller variance.",
    "The error model of an operator",
)
LEAST_WEIGHTS: Final = FixedThreshold(
    4, "weights", "Fewer do not tell whether all of them differ.", "Systematic differences"
)
NEARLY_ALL: Final = FixedThreshold(
    0.8,
    "of the weights",
    "If so many have a difference, it is said once: an embedding or a head is often left out.",
    "Systematic differences",
)
LEAST_DROPOUTS: Final = FixedThreshold(
    2, "dropouts", "One alone that is on is a place to look at.", "Systematic differences"
)
DROPOUT_CHANCE: Final = FixedThreshold(
    6,
    "standard deviations",
    "Two runs of a dropout keep shares, and give norms, that chance lets differ by no more.",
    "Systematic differences",
)
DROPOUT_ROUNDING: Final = FixedThreshold(
    8,
    "roundings",
    "What two runs of a dropout multiply by is one number if it differs by no more.",
    "Systematic differences",
)
BEYOND_LEVEL: Final = FixedThreshold(
    4,
    "times the level",
    "A weight that is further off differs otherwise: rounding is off by at most 2 in a row, scales by 4.",
    "Systematic differences",
)
UNKNOWN_LEVEL: Final = FixedThreshold(
    1,
    "relative error",
    "What statistics of weights that were replaced say of their outputs: nothing, however far off these are.",
    "Systematic differences",
)
BITS_LEFT: Final = FixedThreshold(
    4,
    "times the steps of as many bits",
    "Scales of rows or groups are smaller than that of a whole weight, by at most so much.",
    "Systematic differences",
)
CERTAIN_FROM_VALUES: Final = FixedThreshold(
    3, "times the limit", "From here on a finding from values is called certain.", "How sure a finding is"
)
LIKELY_FROM_VALUES: Final = FixedThreshold(
    1.5, "times the limit", "From here on a finding from values is called likely.", "How sure a finding is"
)
CERTAIN_FROM_STATISTICS: Final = FixedThreshold(
    10,
    "times the limit",
    "From here on a finding from statistics is called certain.",
    "How sure a finding is",
)
LIKELY_FROM_STATISTICS: Final = FixedThreshold(
    2, "times the limit", "From here on a finding from statistics is called likely.", "How sure a finding is"
)
FAR_BEYOND: Final = FixedThreshold(
    1000, "times the limit", "A larger margin is not given as a number.", "How sure a finding is"
)
RECORDED_NORM: Final = FixedThreshold(
    1.1,
    "times the bound",
    "A recorded norm of a mean, or of its gradient, that is larger is one of a sum.",
    "The error model of an operator",
)
LEAST_DIRECTED: Final = FixedThreshold(
    256, "elements", "Rounding of fewer may have a direction by chance.", "Direction"
)
LEAST_ROWS_DIRECTED: Final = FixedThreshold(
    8, "rows", "Rounding of fewer may have a direction by chance, as rows are alike.", "Direction"
)
TURNED_SIGNS: Final = FixedThreshold(
    3,
    "times the root of the error of the gradient",
    "Adam turns the sign of so much of an update where gradients are that far off.",
    "Parameters",
)
LEAST_COVERED: Final = FixedThreshold(
    0.5,
    "share of golden nodes",
    "So many of those that there are to compare were compared where two runs are said to agree.",
    "What was compared",
)
