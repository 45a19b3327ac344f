"""Read the ATB dumps of msit, formerly ait.

msit_dump_20250101_000000/tensors/0_4242/3/20_Decoder_layer/after/outtensor0.bin
"""

from firstdrift.dumps.atb.layout import AtbLayout
from firstdrift.dumps.atb.reader import AtbReader


class MsitAtbReader(AtbReader):
    """The reader of msit's ATB dumps (a `DumpReader`)."""

    format = "msit-atb"
    layout = AtbLayout(holder=("tensors",), models="model/{pid}", layers="layer/{pid}")
