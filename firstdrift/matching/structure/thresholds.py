"""The numbers by which modules and operators of one framework are matched.

Of each: unit | meaning | where it comes from. What comes from "renamed dumps" was tuned on real dumps whose
modules had been renamed, operators inserted and deleted, values changed, with and without statistics; a
"judgement" was made by hand, and tests/truth shows what changing it changes.
"""

from typing import Final

CONFIDENT: Final = 0.6
"""score, 0 to 1 | a match from here on is compared | renamed dumps"""

DOUBTFUL: Final = 0.45
"""score, 0 to 1 | a match from here on is shown as doubtful; below it there is none | renamed dumps"""

SAME_OPERATOR: Final = 0.6
"""score | two operators of the same name | renamed dumps"""

SAME_FAMILY: Final = 0.55
"""score | two operators that are the same but for library and spelling | renamed dumps"""

SAME_SHAPE: Final = 0.15
"""score | added for the inputs, and for the outputs, where all shapes are the same | renamed dumps"""

OTHER_SHAPE: Final = -0.1
"""score | added where no shape is | renamed dumps"""

NO_SHAPES: Final = -0.1
"""score | added where no shapes were recorded | renamed dumps"""

NEIGHBOUR: Final = 0.1
"""score | added for two neighbours of the same kind, and taken away for none | renamed dumps"""

OUTPUTS_AGREE: Final = 0.4
"""share of what is missing to 1 | added to two operators where output values agree | renamed dumps"""

INPUTS_AGREE: Final = 0.2
"""share of what is missing to 1 | added to two operators where input values agree | renamed dumps"""

MODULE_OUTPUTS_AGREE: Final = 0.6
"""share of what is missing to 1 | added to two modules where output values agree | renamed dumps"""

PARAMETERS_AGREE: Final = 0.8
"""share of what is missing to 1 | added to two modules where parameters agree | renamed dumps"""

PARAMETERS_DIFFER: Final = 0.6
"""factor | two modules of other names whose parameters differ, where others fit as well | renamed dumps"""

OTHER_NUMBER: Final = 0.6
"""factor | names with other numbers in them | renamed dumps"""

FIRST_SHAPE: Final = 0.7
"""share of 1 | what the first tensor counts among the shapes of a role | renamed dumps"""

SAME_PARAMETER: Final = 5e-3
"""relative difference | parameters that differ by no more are the same | rounding to bfloat16 changes as
much"""

EQUAL: Final = 1e-5
"""relative difference | statistics that differ by no more are equal | judgement"""

AGREES: Final = 1e-3
"""relative difference | statistics agree fully up to here | judgement"""

DIFFERS: Final = 1e-1
"""relative difference | statistics agree not at all from here on; between the two by the logarithm |
judgement"""

SAME_NAME_SCORE: Final = 0.95
"""score, 0 to 1 | a module of the same name inside a renamed module | judgement"""

TWINS: Final = 0.8
"""score, 0 to 1 | operators of other names whose outputs agree, and with no other outputs | judgement"""

FUZZY: Final = 0.9
"""score, 0 to 1 | a match by path alone | judgement"""

LARGEST_TABLE: Final = 40_000
"""pairs of nodes | runs of siblings up to which each pair is weighed | 200 by 200"""

UNSURE: Final = 6
"""operators | on either side of an insertion, weighed again | judgement"""

CONTIGUOUS: Final = 1e-3
"""score | added where two pairs follow each other | far below the other terms: it decides between equals
only"""

MOST_RIVALS: Final = 20
"""nodes | rivals that are looked at on either side | bounds the time it takes"""

TIE: Final = 0.02
"""score | scores closer than this do not tell two candidates apart | judgement"""

VALUES_COUNT: Final = 0.6
"""share of what is missing to 1 | added where output values agree; values that differ count for nothing |
judgement"""

ALIKE: Final = 0.5
"""likeness, 0 to 1 | from here on names are mentioned as a reason | judgement"""

OTHER_LAYER: Final = 0.8
"""factor | what was fused, of another layer | judgement"""

LOWEST: Final = 0.15
"""score, 0 to 1 | candidates below are not shown | judgement"""

NAMES_LOOKED_AT: Final = 16
"""names | tell which words the names of a dump lack | bounds the time it takes"""
