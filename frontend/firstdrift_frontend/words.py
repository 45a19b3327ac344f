"""Words that pages show because the data say them: verdicts, classes, kinds, states, names.

Templates say them with `{{ _(word) }}`, which does not tell translators what they are; this list does.
"""


def _(word: str) -> str:
    return word


WORDS = (
    *(_("pass"), _("warning"), _("error"), _("incomparable"), _("unmatched"), _("input differs")),
    *(_("source"), _("weights differ"), _("propagated"), _("amplified"), _("healed"), _("structure differs")),
    *(_("non-finite"), _("clean")),
    *(_("model"), _("module"), _("api"), _("operator")),
    *(_("forward"), _("backward"), _("none")),
    *(_("exact"), _("fuzzy"), _("mapping"), _("structure"), _("manual")),
    *(_("input"), _("output"), _("parameter"), _("gradient")),
    *(_("critical"), _("high"), _("medium")),
    *(_("queued"), _("running"), _("done"), _("failed"), _("cancelled")),
    *(_("layer"), _("logits"), _("rank"), _("step"), _("token"), _("micro step")),
    *(_("Cosine"), _("Mismatched"), _("SQNR"), _("Elements"), _("Equal")),
    *(_("Amplification"), _("Floor"), _("Parameters"), _("Drift"), _("Excess")),
    *(_("equal"), _("constant"), _("scaled"), _("sign"), _("moved")),
    *(_("saturated"), _("confined"), _("rounded")),
    *(_("batch"), _("channel"), _("row"), _("column")),
    *(_("matched"), _("doubtful"), _("recorded")),
    *(_("indexing"), _("reading"), _("matching"), _("measuring"), _("computing")),
)

SENTENCES = (_("{0}. {1}"), _("{0}."))
"""How sentences follow each other, and how a sentence ends."""
