"""The numbers by which modules and operators of one framework are matched.

Of each: unit | meaning | where it comes from.
"""

from typing import Final

CONFIDENT: Final = 0.6
"""score, 0 to 1 | a match from here on is compared | tuned on real dumps: modules renamed, operators inserted
and deleted, values changed, with and without statistics"""

DOUBTFUL: Final = 0.45
"""score, 0 to 1 | a match from here on is shown as doubtful; below it there is none | tuned on real dumps:
modules renamed, operators inserted and deleted, values changed, with and without statistics"""

SAME_OPERATOR: Final = 0.6
"""score | two operators of the same name | tuned on real dumps: modules renamed, operators inserted and
deleted, values changed, with and without statistics"""

SAME_FAMILY: Final = 0.55
"""score | two operators that are the same but for library and spelling | tuned on real dumps: modules
renamed, operators inserted and deleted, values changed, with and without statistics"""

SAME_SHAPE: Final = 0.15
"""score | added for the inputs, and for the outputs, where all shapes are the same | tuned on real dumps:
modules renamed, operators inserted and deleted, values changed, with and without statistics"""

OTHER_SHAPE: Final = -0.1
"""score | added where no shape is | tuned on real dumps: modules renamed, operators inserted and deleted,
values changed, with and without statistics"""

NO_SHAPES: Final = -0.1
"""score | added where no shapes were recorded | tuned on real dumps: modules renamed, operators inserted and
deleted, values changed, with and without statistics"""

NEIGHBOUR: Final = 0.1
"""score | added for two neighbours of the same kind, and taken away for none | tuned on real dumps: modules
renamed, operators inserted and deleted, values changed, with and without statistics"""

OUTPUTS_AGREE: Final = 0.4
"""share of what is missing to 1 | added to two operators where output values agree | tuned on real dumps:
modules renamed, operators inserted and deleted, values changed, with and without statistics"""

INPUTS_AGREE: Final = 0.2
"""share of what is missing to 1 | added to two operators where input values agree | tuned on real dumps:
modules renamed, operators inserted and deleted, values changed, with and without statistics"""

MODULE_OUTPUTS_AGREE: Final = 0.6
"""share of what is missing to 1 | added to two modules where output values agree | tuned on real dumps:
modules renamed, operators inserted and deleted, values changed, with and without statistics"""

PARAMETERS_AGREE: Final = 0.8
"""share of what is missing to 1 | added to two modules where parameters agree | tuned on real dumps: modules
renamed, operators inserted and deleted, values changed, with and without statistics"""

PARAMETERS_DIFFER: Final = 0.6
"""factor | two modules of other names whose parameters differ, where others fit as well | tuned on real
dumps: modules renamed, operators inserted and deleted, values changed, with and without statistics"""

FITS_INSIDE: Final = 0.2
"""factor | a module that what the other one wraps fits better | tuned on real dumps: modules renamed,
operators inserted and deleted, values changed, with and without statistics"""

OTHER_NUMBER: Final = 0.6
"""factor | names with other numbers in them | tuned on real dumps: modules renamed, operators inserted and
deleted, values changed, with and without statistics"""

FIRST_SHAPE: Final = 0.7
"""share of 1 | what the first tensor counts among the shapes of a role | tuned on real dumps: modules
renamed, operators inserted and deleted, values changed, with and without statistics"""

SAME_PARAMETER: Final = 5e-3
"""relative difference | parameters that differ by no more are the same | rounding to bfloat16 changes as
much"""

EQUAL: Final = 1e-5
"""relative difference | statistics that differ by no more are equal | chosen by hand; tests/truth shows what
changing it changes"""

AGREES: Final = 1e-3
"""relative difference | statistics agree fully up to here | chosen by hand; tests/truth shows what changing
it changes"""

DIFFERS: Final = 1e-1
"""relative difference | statistics agree not at all from here on; between the two by the logarithm | chosen
by hand; tests/truth shows what changing it changes"""

SAME_NAME_SCORE: Final = 0.95
"""score, 0 to 1 | a module of the same name inside a renamed module | chosen by hand; tests/truth shows what
changing it changes"""

TWINS: Final = 0.8
"""score, 0 to 1 | operators of other names whose outputs agree, and with no other outputs | chosen by hand;
tests/truth shows what changing it changes"""

FUZZY: Final = 0.9
"""score, 0 to 1 | a match by path alone | chosen by hand; tests/truth shows what changing it changes"""

LARGEST_TABLE: Final = 40_000
"""pairs of nodes | runs of siblings up to which each pair is weighed | 200 by 200"""

UNSURE: Final = 6
"""operators | on either side of an insertion, weighed again | chosen by hand; tests/truth shows what changing
it changes"""

CONTIGUOUS: Final = 1e-3
"""score | added where two pairs follow each other | far below the other terms: it decides between equals
only"""

SAME_CALL: Final = 1e-6
"""score | added for an equal call number | far below CONTIGUOUS: it decides last"""

MOST_RIVALS: Final = 20
"""nodes | rivals that are looked at on either side | bounds the time it takes"""

TIE: Final = 0.02
"""score | scores closer than this do not tell two candidates apart | chosen by hand; tests/truth shows what
changing it changes"""

VALUES_COUNT: Final = 0.6
"""share of what is missing to 1 | added where output values agree; values that differ count for nothing |
chosen by hand; tests/truth shows what changing it changes"""

ALIKE: Final = 0.5
"""likeness, 0 to 1 | from here on names are mentioned as a reason | chosen by hand; tests/truth shows what
changing it changes"""

OTHER_LAYER: Final = 0.8
"""factor | what was fused, of another layer | chosen by hand; tests/truth shows what changing it changes"""

LOWEST: Final = 0.15
"""score, 0 to 1 | candidates below are not shown | chosen by hand; tests/truth shows what changing it
changes"""

NAMES_LOOKED_AT: Final = 16
"""names | tell which words the names of a dump lack | bounds the time it takes"""
