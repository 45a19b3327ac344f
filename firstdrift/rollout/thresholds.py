"""The numbers by which log-probabilities of two engines are judged, and those that bound what is read.

Of each: unit | meaning | where it comes from; docs/rollout.md has the study behind the first ones.
"""

from typing import Final

EXPLAINED: Final = {"bfloat16": 2.0**-3, "float16": 2.0**-6, "float32": 2.0**-14}
"""log-odds | noise that rounding explains in a model of this dtype | 32 unit roundoffs, as at logits of 32;
a mean difference of probabilities near 0.01, from which on guides of verl call a run suspicious; of float32
1024, as its sums round, too; docs/rollout.md has what was measured"""

OUT: Final = 24.0
"""robust standard deviations | beyond which a token leaves the noise | healthy tokens of the study in
docs/rollout.md stay below 18"""

STRAYS: Final = 1e-4
"""share of tokens | that may leave the noise in a run within rounding | judgement: noise has long
tails, and one token in 10,000 is shown, but not called a fault"""

FEWEST: Final = 16
"""tokens | of which a robust scale is formed | below it, the scale itself is off by more than a third"""

TELLING: Final = 1e-4
"""probability left to other tokens | below which a token says nothing of the noise | float32 keeps
three digits of it there"""

ROUNDED: Final = 2.0**-19
"""nats | by which a log-probability computed in float32 is off | a unit roundoff at logits of 32"""

ROUNDINGS: Final = 4.0
"""times ROUNDED | that both log-probabilities together may be off | one for each, one for each sum"""

ABOVE_ZERO: Final = 0.05
"""nats | by which a log-probability may exceed 0 | a log-softmax in bfloat16 at logits of 16"""

LEAST_COMPARED: Final = 0.5
"""share of the rollout's sequences | that is compared, or nothing is said of agreement | as of the golden
nodes of two dumps"""

OTHER_EXPERTS: Final = 0.05
"""share of tokens | from which on a layer is said to choose other experts | judgement: near ties in
bfloat16 stay below it"""

MOST_LAYERS_OF_TIES: Final = 0.5
"""share of layers | up to which other experts of a token are near ties | the majority: a state for which most
routers choose otherwise is another one"""

BIASED: Final = 8.0
"""standard errors | over sequences, by which the mean ratio is off 1, from where on all of a run drifts |
judgement: of a million comparisons of healthy runs none should reach it by chance"""

MOST_TEXT: Final = 2**28
"""characters | of tokens, prompts and names as text, of a side | bounds memory"""

SHIFTED: Final = 0.25
"""of the mean difference | that is left when one side is shifted by a token, if it is | judgement"""

TEMPERED: Final = 0.8
"""correlation | of differences of log-odds with log-odds, from which on a temperature is named | judgement"""

SHORTEST_TAIL: Final = 8
"""tokens | from which on a sequence is tried for a shift | judgement"""

BAND: Final = (0.8, 1.2)
"""ratio | outside of which PPO clips | the clip range 0.2 of Schulman et al. 2017, arXiv 1707.06347"""

MOST_LINE: Final = 2**26
"""bytes | of a line of JSON | bounds memory: a sequence of 128k tokens with experts of 24 layers fits"""

MOST_TOKENS: Final = 2**24
"""tokens | of a side | bounds memory: 512 sequences of 32k"""

MOST_EXPERTS: Final = 2**28
"""numbers of experts | of a side | bounds memory"""

MOST_SEQUENCES: Final = 2**18
"""sequences | of a side | bounds memory"""

MOST_FILES: Final = 4096
"""files | of a folder | bounds time"""
