"""What a step of training shows of parameters, apart from the rest of what is said of a slice.

It is as large as the model, and asked for only where slices are judged after it.
"""

import zlib
from collections.abc import Mapping
from typing import Final

from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import replace
from sqlalchemy import select
from sqlalchemy.orm import Session

from firstdrift.catalogue.tables import SlicePairEntry
from firstdrift.verdict.earlier import without_parameters
from firstdrift.verdict.judgement import SliceJudgement
from firstdrift.verdict.training import Trained

_QUICKLY: Final = 1
"""Level of compression: higher ones save a tenth and take longer."""


def without_trained(judgement: SliceJudgement) -> tuple[SliceJudgement, bytes | None]:
    """Take the parameters out of what is said; None if there are none, or their names cannot be packed."""
    if judgement.training is None or not judgement.training.parameters:
        return judgement, None
    try:
        packed = _ENCODER.encode(judgement.training.parameters)
    except UnicodeEncodeError:
        return judgement, None
    return without_parameters(judgement), zlib.compress(packed, _QUICKLY)


def with_trained(judgement: SliceJudgement, trained: bytes | None) -> SliceJudgement:
    """Put the parameters that were taken out back."""
    if trained is None or judgement.training is None:
        return judgement
    parameters = _DECODER.decode(zlib.decompress(trained))
    return replace(judgement, training=replace(judgement.training, parameters=parameters))


def whole_judgements(session: Session, comparison_id: int) -> dict[int, SliceJudgement]:
    """Give all that is said of the slices of a comparison, by position."""
    columns = SlicePairEntry.position, SlicePairEntry.judgement, SlicePairEntry.trained
    here = (SlicePairEntry.comparison_id == comparison_id, SlicePairEntry.complete)
    found = session.execute(select(*columns).where(*here).order_by(SlicePairEntry.position))
    return {position: with_trained(judgement, trained) for position, judgement, trained in found}


_ENCODER, _DECODER = Encoder(), Decoder(Mapping[str, Trained])
