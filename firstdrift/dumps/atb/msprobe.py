"""Read the ATB dumps of msprobe.

atb_dump_data/data/0_4242/3/20_Decoder_layer/after/outtensor0.bin
"""

from firstdrift.dumps.atb.layout import AtbLayout
from firstdrift.dumps.atb.reader import AtbReader


class MsprobeAtbReader(AtbReader):
    """The reader of msprobe's ATB dumps (a `DumpReader`)."""

    format = "msprobe-atb"
    layout = AtbLayout(
        holder=("atb_dump_data", "data"), models="info/model/{process}", layers="info/layer/{process}"
    )
